"""DeleteGroups (key 42), versions 0-2: deletes groups without members, and their offsets. v2: flexible.

Needs DELETE on each group. Answered when the tombstones are recorded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.broker.groups.share.group import ShareGroup
from odradek.broker.groups.share.state import begin_deletion
from odradek.broker.runtime.delayed import all_of
from odradek.broker.shares.leader import group_state
from odradek.protocol.acls import Operation, ResourceType
from odradek.protocol.errors import KafkaError
from odradek.protocol.messages.delete_groups_response import DeletableGroupResult, DeleteGroupsResponse

if TYPE_CHECKING:
    from odradek.broker.api.context import RequestContext
    from odradek.broker.broker import Broker
    from odradek.broker.runtime.delayed import Deferred
    from odradek.protocol.messages.delete_groups_request import DeleteGroupsRequest


def delete_groups(
    request: DeleteGroupsRequest, context: RequestContext, broker: Broker
) -> DeleteGroupsResponse | Deferred[DeleteGroupsResponse]:
    """One turn per group: one whose tombstones cannot be written does not keep the others."""
    group_ids = list(dict.fromkeys(request.groups_names))
    return all_of(
        [delete_group(group_id, context, broker) for group_id in group_ids],
        lambda index, error: failed(group_ids[index], error),
        lambda results: DeleteGroupsResponse(results=results),
    )


def delete_group(
    group_id: str, context: RequestContext, broker: Broker
) -> DeletableGroupResult | Deferred[DeletableGroupResult]:
    try:
        context.require(Operation.DELETE, ResourceType.GROUP, group_id)
        shard = broker.groups.shard_for(group_id)
        if shard.look(lambda core: isinstance(core.registry.groups.get(group_id), ShareGroup)):
            return delete_share_group(group_id, broker)
        return shard.submit(lambda core, _: core.delete_group(group_id))
    except KafkaError as error:
        return failed(group_id, error)


def delete_share_group(group_id: str, broker: Broker) -> DeletableGroupResult | Deferred[DeletableGroupResult]:
    """Its share state goes first; if that fails the group stays, and can be deleted again."""
    shard = broker.groups.shard_for(group_id)

    def deleted(refusals: group_state.Refusals) -> DeletableGroupResult | Deferred[DeletableGroupResult]:
        for error in refusals.values():
            return failed(group_id, error)
        return shard.submit(lambda core, _: core.delete_group(group_id))

    return group_state.once_recorded(
        shard.submit(lambda core, now_ms: begin_deletion(core.registry, group_id, None, now_ms)),
        lambda gone: group_state.once_recorded(group_state.delete(broker, group_id, gone), deleted),
    )


def failed(group_id: str, error: KafkaError) -> DeletableGroupResult:
    return DeletableGroupResult(group_id=group_id, error_code=error.code.value)
