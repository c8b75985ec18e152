"""Rules about OffsetCommits from members with epochs, in consumer groups (KIP-848) and streams groups (KIP-1071).

Both kinds of members use OffsetCommit v9 or later and must follow the same rules about epochs. Only the rule ids
differ.
"""

from __future__ import annotations

from typing import Final, NamedTuple, Protocol

from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.offset_commit_request import OffsetCommitRequest
from odradek.protocol.messages.offset_commit_response import OffsetCommitResponse
from odradek.testing.judge.exchanges import Exchange, knows_response
from odradek.testing.judge.scene import Scene

STALE: Final = ErrorCode.STALE_MEMBER_EPOCH.value
WITH_EPOCHS: Final = 9  # first version of OffsetCommit with member epochs


class EpochMember(Protocol):
    """A member's state, which the rules examine.

    epoch         the epoch in `last_response`, which is the last response without an error; -1 if there is none
    departure     the heartbeat with which the member left
    stale_commit  the last commit, if its response was STALE_MEMBER_EPOCH
    """

    epoch: int
    last_response: Exchange | None
    last_heartbeat: Exchange | None
    departure: Exchange | None
    stale_commit: Exchange | None


class CommitRules(NamedTuple):
    """The ids of the rules about commits for one kind of group."""

    holds_epoch: str
    sends_nothing_after_leaving: str
    is_current_after_stale: str
    is_current: str


def check_commit(exchange: Exchange, scene: Scene, member: EpochMember, rules: CommitRules) -> None:
    request = exchange.request
    assert isinstance(request, OffsetCommitRequest)
    if exchange.version < WITH_EPOCHS or not request.member_id or member.last_heartbeat is None:
        return
    scene.join(exchange.connection, "member", request.group_id, request.member_id)
    epoch = request.generation_id_or_member_epoch
    scene.decide(rules.holds_epoch, epoch > 0, exchange, f"a commit with epoch {epoch}", member.last_heartbeat)
    if member.departure is not None and exchange.earliest_us > member.departure.received_us:
        if epoch >= 0:  # a commit with epoch -1 does not claim membership
            why = f"the member commits with epoch {epoch} after it has left"
            scene.record_broken(rules.sends_nothing_after_leaving, exchange, why, member.departure)
        return
    last_response = member.last_response
    if last_response is None or member.epoch < 0:
        return
    why = f"the member commits with epoch {epoch}, but the last answer had {member.epoch}"
    if (
        member.stale_commit is not None
        and knows_response(exchange, member.stale_commit)
        and knows_response(exchange, last_response)
    ):
        scene.decide(
            rules.is_current_after_stale, epoch == member.epoch, exchange, why, member.stale_commit, last_response
        )
        member.stale_commit = None
    elif epoch == member.epoch or knows_response(exchange, last_response):
        scene.decide(rules.is_current, epoch == member.epoch, exchange, why, last_response)


def is_answered_stale(exchange: Exchange) -> bool:
    """Returns whether an OffsetCommit response contains STALE_MEMBER_EPOCH."""
    answer = exchange.answer
    if not isinstance(answer, OffsetCommitResponse):
        return False
    return STALE in {partition.error_code for topic in answer.topics for partition in topic.partitions}
