"""Rules GRP.8 and GRP.9, about the partitions that members of classic groups claim and their assignment by the group's
leader (KIP-429, KIP-792).

The broker does not interpret subscriptions and assignments. Groups with the protocol type `consumer` encode them in
Kafka's own format, so only these groups are judged.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

from odradek.protocol.api_keys import ApiKey
from odradek.protocol.codec import decode
from odradek.protocol.errors import MalformedMessage
from odradek.protocol.messages.consumer_protocol_assignment import ConsumerProtocolAssignment
from odradek.protocol.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from odradek.protocol.messages.join_group_request import JoinGroupRequest
from odradek.protocol.messages.join_group_response import JoinGroupResponse
from odradek.protocol.messages.sync_group_request import SyncGroupRequest
from odradek.protocol.messages.sync_group_response import SyncGroupResponse
from odradek.testing.judge.exchanges import Exchange, knows_response
from odradek.testing.judge.rule import Family, M, ProtocolRule

if TYPE_CHECKING:
    from odradek.protocol.struct import Buffer
    from odradek.testing.judge.scene import Scene

CONSUMER: Final = "consumer"
COOPERATIVE: Final = "cooperative"  # occurs in the names of cooperative assignors
VERSION_BYTES: Final = 2
T = TypeVar("T", ConsumerProtocolSubscription, ConsumerProtocolAssignment)
Owned: TypeAlias = frozenset[tuple[str, int]]

# fmt: off
RULES = (
    ProtocolRule("GRP.8", M, "In JoinGroup a member claims only the partitions of its last assignment",
        "a JoinGroup that claims partitions, from a member whose assignment is in the recording"),
    ProtocolRule("GRP.9", M,
        "If several members claim a partition, a claim from an earlier generation does not win it",
        "a cooperative assignment in which two members claim a partition with different generations"),
)
# fmt: on


@dataclass(slots=True)
class HeldPartitions:
    """The partitions in a member's last assignment, which `response` contained, and those in the assignment before
    it."""

    response: Exchange | None = None
    partitions: Owned = frozenset()
    earlier_partitions: Owned = frozenset()


@dataclass(slots=True)
class Claims:
    """All members' claims, as the group's leader received them. `by_partition` contains the generation and the member
    id of each claim."""

    response: Exchange | None = None
    protocol: str = ""
    by_partition: dict[tuple[str, int], list[tuple[int, str]]] = field(default_factory=dict)


def on_join_group(exchange: Exchange, scene: Scene) -> None:
    request = exchange.request
    assert isinstance(request, JoinGroupRequest)
    if request.protocol_type != CONSUMER or not request.member_id:
        return
    held = scene.state(HeldPartitions, request.group_id, request.member_id)
    if held.response is None:
        return
    is_known = knows_response(exchange, held.response)
    for protocol in request.protocols:
        _, claimed = claims_of(protocol.metadata)
        if claimed:
            more = claimed - held.partitions - (frozenset() if is_known else held.earlier_partitions)
            why = f"the member claims {sorted(more)} with {protocol.name}, but these partitions were not assigned to it"
            scene.decide("GRP.8", not more, exchange, why, held.response)


def on_join_group_response(exchange: Exchange, scene: Scene) -> None:
    request, answer = exchange.request, exchange.answer
    assert isinstance(request, JoinGroupRequest)
    if not isinstance(answer, JoinGroupResponse) or answer.error_code or not answer.members:
        return
    claims = scene.state(Claims, request.group_id, answer.member_id)
    claims.response, claims.protocol = exchange, answer.protocol_name or ""
    claims.by_partition.clear()
    for member in answer.members:
        generation, claimed = claims_of(member.metadata)
        for place in claimed:
            claims.by_partition.setdefault(place, []).append((generation, member.member_id))


def on_sync_group(exchange: Exchange, scene: Scene) -> None:
    request = exchange.request
    assert isinstance(request, SyncGroupRequest)
    claims = scene.state(Claims, request.group_id, request.member_id)
    claim_response = claims.response
    if claim_response is None or not request.assignments or COOPERATIVE not in claims.protocol:
        return
    if (
        not isinstance(claim_response.answer, JoinGroupResponse)
        or claim_response.answer.generation_id != request.generation_id
    ):
        return
    given = {place: each.member_id for each in request.assignments for place in assigned_partitions(each.assignment)}
    for place, claimed in claims.by_partition.items():
        (last, owner), *others = sorted(claimed, reverse=True)
        stale = {member for generation, member in others if 0 <= generation < last}
        if stale and len(stale) == len(others):
            winner = given.get(place)
            why = f"{place[0]}-{place[1]} goes to {winner!r}, although {owner!r} owns it in a later generation"
            scene.decide("GRP.9", winner not in stale, exchange, why, claim_response)


def on_sync_group_response(exchange: Exchange, scene: Scene) -> None:
    request, answer = exchange.request, exchange.answer
    assert isinstance(request, SyncGroupRequest)
    if not isinstance(answer, SyncGroupResponse) or answer.error_code:
        return
    held = scene.state(HeldPartitions, request.group_id, request.member_id)
    held.response, held.earlier_partitions, held.partitions = (
        exchange,
        held.partitions,
        assigned_partitions(answer.assignment),
    )


def claims_of(metadata: Buffer) -> tuple[int, Owned]:
    """Returns the generation in a subscription and the partitions that it claims. The generation is -1 if the
    subscription does not contain one. For a subscription in another format, returns -1 and no partitions."""
    claim_response = _parse(ConsumerProtocolSubscription, metadata)
    if claim_response is None:
        return -1, frozenset()
    return claim_response.generation_id, frozenset(
        (each.topic, index) for each in claim_response.owned_partitions for index in each.partitions
    )


def assigned_partitions(assignment: Buffer) -> Owned:
    claim_response = _parse(ConsumerProtocolAssignment, assignment)
    if claim_response is None:
        return frozenset()
    return frozenset((each.topic, index) for each in claim_response.assigned_partitions for index in each.partitions)


def _parse(kind: type[T], data: Buffer) -> T | None:
    """Parses a subscription or an assignment. Returns None on failure. Like Kafka, parses versions newer than the
    newest known version as that version."""
    version = int.from_bytes(data[:VERSION_BYTES], signed=True)
    if len(data) < VERSION_BYTES or version < 0:
        return None
    try:
        return decode(kind, min(version, kind.MAX_VERSION), data, VERSION_BYTES)
    except (MalformedMessage, ValueError, IndexError):
        return None


FAMILY = Family(
    RULES,
    on_request={ApiKey.JOIN_GROUP: (on_join_group,), ApiKey.SYNC_GROUP: (on_sync_group,)},
    on_response={ApiKey.JOIN_GROUP: (on_join_group_response,), ApiKey.SYNC_GROUP: (on_sync_group_response,)},
)
