"""ListGroups (key 16), versions 0-5: all groups of this broker.

v3: flexible. v4: filter by state; states are shown. v5: filter by type; types are shown.
Needs DESCRIBE on the cluster; without it, shows the groups that the client may DESCRIBE. While a partition is loading,
the whole answer is COORDINATOR_LOAD_IN_PROGRESS: half a list would look like a complete one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.broker.api.authorized_operations import is_allowed
from odradek.broker.api.context import Audit
from odradek.protocol.acls import CLUSTER_NAME, Operation, ResourceType
from odradek.protocol.messages.list_groups_response import ListGroupsResponse

if TYPE_CHECKING:
    from odradek.broker.api.context import RequestContext
    from odradek.broker.broker import Broker
    from odradek.protocol.messages.list_groups_request import ListGroupsRequest


def list_groups(request: ListGroupsRequest, context: RequestContext, broker: Broker) -> ListGroupsResponse:
    groups = []
    for shard in broker.groups.shards:
        if shard.is_away:
            continue
        groups += shard.look(lambda core: core.list_groups(request.states_filter, request.types_filter))
    if not is_allowed(context, Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME, Audit.PROBE):
        groups = [
            group
            for group in groups
            if is_allowed(context, Operation.DESCRIBE, ResourceType.GROUP, group.group_id, Audit.PROBE)
        ]
    return ListGroupsResponse(groups=groups)
