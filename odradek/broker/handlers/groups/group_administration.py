"""Administrative handlers that list, describe and delete groups of all types."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

from odradek.broker.api.authorized_operations import authorized_operations, is_allowed
from odradek.broker.api.context import Audit, RequestContext
from odradek.broker.api.long_requests import AnswerEntries, entries_of
from odradek.broker.runtime.slices import Steps, done_in_slices, made_of_each, sliced, visit_in_slices
from odradek.broker.runtime.waiting import start_coroutine, wait_for_answer
from odradek.broker.shares.leader import group_state
from odradek.protocol.acls import CLUSTER_NAME, Operation, ResourceType
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.delete_groups_response import DeletableGroupResult, DeleteGroupsResponse
from odradek.protocol.messages.describe_groups_response import DescribedGroup, DescribeGroupsResponse
from odradek.protocol.messages.list_groups_response import ListedGroup, ListGroupsResponse
from odradek.protocol.messages.streams_group_describe_response import DescribedGroup as DescribedStreamsGroup

if TYPE_CHECKING:
    from odradek.broker.coordinators.shard import Shard
    from odradek.broker.groups.core import GroupCore
    from odradek.broker.handlers.handler_broker import HandlerBroker
    from odradek.protocol.messages.delete_groups_request import DeleteGroupsRequest
    from odradek.protocol.messages.describe_groups_request import DescribeGroupsRequest
    from odradek.protocol.messages.list_groups_request import ListGroupsRequest


async def list_groups(request: ListGroupsRequest, context: RequestContext, broker: HandlerBroker) -> ListGroupsResponse:
    """Handles ListGroups (key 16), versions 0-5, which lists all groups of this broker.

    v3 is flexible. v4 adds a filter by state, and returns the states. v5 adds a filter by type, and returns the types.
    Needs DESCRIBE on the cluster. Without this permission, the response contains only the groups that the client may
    DESCRIBE. While any partition is loading, the whole request fails with COORDINATOR_LOAD_IN_PROGRESS, because a
    partial list would look complete. The handler works in slices, so that other clients can be served between two
    partitions of `__consumer_offsets`.
    """
    sees_all = is_allowed(context, Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME, Audit.PROBE)
    groups: list[ListedGroup] = []

    def show(shard: Shard[GroupCore]) -> None:
        if shard.is_away:
            return
        listed = shard.read_state(lambda core: core.list_groups(request.states_filter, request.types_filter))
        groups.extend(
            group
            for group in listed
            if sees_all or is_allowed(context, Operation.DESCRIBE, ResourceType.GROUP, group.group_id, Audit.PROBE)
        )

    await visit_in_slices(broker.groups.shards, show, broker.watch, "ListGroups")
    return ListGroupsResponse(groups=groups)


@sliced
def describe_groups(
    request: DescribeGroupsRequest, context: RequestContext, broker: HandlerBroker
) -> Steps[DescribeGroupsResponse]:
    """Handles DescribeGroups (key 15), versions 0-6, which returns the state, protocol and members of classic groups.

    v3 adds authorized operations. v4 adds static members. v5 is flexible. Since v6, a missing group is reported as
    GROUP_ID_NOT_FOUND with a message, rather than as a group in the state Dead. Needs DESCRIBE on each group.
    """
    groups = yield from describe_groups_in_steps(
        request.groups, describe, request.include_authorized_operations, context, broker
    )
    return DescribeGroupsResponse(groups=groups)


class DescribedGroupEntry(Protocol):
    """A group in the response to one of the four APIs that describe groups."""

    error_code: int
    authorized_operations: int

    @property
    def members(self) -> Sequence[object]: ...


G = TypeVar("G", bound=DescribedGroupEntry)


def describe_groups_in_steps(
    group_ids: Iterable[str],
    describe: Callable[[str, RequestContext, HandlerBroker], G],
    includes_operations: bool,
    context: RequestContext,
    broker: HandlerBroker,
) -> Steps[list[G]]:
    """Describes groups. Yields once for each group and each member, so that other clients can be served. Raises
    INVALID_REQUEST if the response would be too large."""
    groups, entries = [], AnswerEntries()
    for group_id in group_ids:
        group = describe(group_id, context, broker)
        if includes_operations and group.error_code == ErrorCode.NONE.value:
            group.authorized_operations = authorized_operations(context, ResourceType.GROUP, group_id)
        groups.append(group)
        count = entries_of(group) if isinstance(group, DescribedStreamsGroup) else len(group.members)
        entries.add(1 + count, stored_bytes(group))
        for _ in range(1 + len(group.members)):
            yield
    return groups


def stored_bytes(group: DescribedGroupEntry) -> int:
    """Returns the total size of the data sent by a classic group's members, which is unlimited. Returns 0 for other
    groups."""
    if not isinstance(group, DescribedGroup):
        return 0
    return sum(len(member.member_metadata) + len(member.member_assignment) for member in group.members)


def describe(group_id: str, context: RequestContext, broker: HandlerBroker) -> DescribedGroup:
    version = context.api_version
    try:
        context.require(Operation.DESCRIBE, ResourceType.GROUP, group_id)
        return broker.groups.shard_for(group_id).read_state(lambda core: core.describe_group(group_id, version=version))
    except KafkaError as error:
        return DescribedGroup(group_id=group_id, error_code=error.code.value)


async def delete_groups(
    request: DeleteGroupsRequest, context: RequestContext, broker: HandlerBroker
) -> DeleteGroupsResponse:
    """Handles DeleteGroups (key 42), versions 0-3, which deletes groups that have no members, together with their
    offsets.

    v2 is flexible. v3 adds an error message, which is never set for these refusals (docs/spec/kafka-4.4.md#s3-1). Needs
    DELETE on each group. The response is sent once the tombstones are recorded. Each group is deleted separately, so a
    group whose tombstones cannot be written does not affect the others.
    """
    group_ids = list(dict.fromkeys(request.groups_names))
    deletions = await done_in_slices(
        made_of_each(group_ids, lambda group_id: start_coroutine(delete_group(group_id, context, broker)))
    )
    response = DeleteGroupsResponse()
    for deletion in deletions:
        response.results.append(await wait_for_answer(deletion))
    return response


async def delete_group(group_id: str, context: RequestContext, broker: HandlerBroker) -> DeletableGroupResult:
    try:
        context.require(Operation.DELETE, ResourceType.GROUP, group_id)
        shard = broker.groups.shard_for(group_id)
        is_share_group = shard.read_state(lambda core: core.share_group(group_id) is not None)
        if is_share_group:
            await delete_share_state(group_id, broker)
        if shard.read_state(lambda core: core.has_description(group_id)):
            await wait_for_answer(shard.submit(lambda core, now_ms: core.begin_description_removal(group_id, now_ms)))
            await wait_for_answer(shard.submit(lambda core, now_ms: core.description_removed(group_id, now_ms)))
        result = await wait_for_answer(shard.submit(lambda core, _: core.delete_group(group_id)))
        if is_share_group and not result.error_code:
            broker.shares.dead_letters.forget_group(group_id)
        return result
    except KafkaError as error:
        return deletion_refusal(group_id, error)


async def delete_share_state(group_id: str, broker: HandlerBroker) -> None:
    """Deletes the state that the share coordinator stores for a group. Raises KafkaError if some state cannot be
    deleted. The group is then kept, so that the deletion can be repeated."""
    shard = broker.groups.shard_for(group_id)
    deleted = await wait_for_answer(
        shard.submit(lambda core, now_ms: core.begin_share_deletion(group_id, None, now_ms))
    )
    refusals = await group_state.delete_state(broker, group_id, deleted)
    for error in refusals.values():
        raise error


def deletion_refusal(group_id: str, error: KafkaError) -> DeletableGroupResult:
    return DeletableGroupResult(group_id=group_id, error_code=error.code.value)
