"""ListGroups (key 16), versions 0-5: all groups of this broker.

v3: flexible. v4: filter by state; states are shown. v5: filter by type; types are shown.
Needs DESCRIBE on the cluster; without it, shows the groups that the client may DESCRIBE. While a partition is loading,
the whole answer is COORDINATOR_LOAD_IN_PROGRESS: half a list would look like a complete one. Other clients are served
between two partitions of `__consumer_offsets`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.broker.api.authorized_operations import is_allowed
from odradek.broker.api.context import Audit
from odradek.broker.runtime.slices import visit_in_slices
from odradek.protocol.acls import CLUSTER_NAME, Operation, ResourceType
from odradek.protocol.messages.list_groups_response import ListGroupsResponse

if TYPE_CHECKING:
    from odradek.broker.api.context import RequestContext
    from odradek.broker.broker import Broker
    from odradek.broker.coordinators.shard import Shard
    from odradek.broker.groups.core import GroupCore
    from odradek.protocol.messages.list_groups_request import ListGroupsRequest
    from odradek.protocol.messages.list_groups_response import ListedGroup


async def list_groups(request: ListGroupsRequest, context: RequestContext, broker: Broker) -> ListGroupsResponse:
    sees_all = is_allowed(context, Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME, Audit.PROBE)
    groups: list[ListedGroup] = []

    def show(shard: Shard[GroupCore]) -> None:
        if shard.is_away:
            return
        listed = shard.look(lambda core: core.list_groups(request.states_filter, request.types_filter))
        groups.extend(
            group
            for group in listed
            if sees_all or is_allowed(context, Operation.DESCRIBE, ResourceType.GROUP, group.group_id, Audit.PROBE)
        )

    await visit_in_slices(broker.groups.shards, show, broker.watch, "ListGroups")
    return ListGroupsResponse(groups=groups)
