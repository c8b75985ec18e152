"""ConsumerGroupHeartbeat (key 68), versions 0-1: members of a consumer group (KIP-848) join, stay and leave.

v1: regular expressions, and member ids made by the client. Needs READ on the group, DESCRIBE on the topics named;
topics that a regular expression matches are left out where the member lacks DESCRIBE. Answered when what was decided
is recorded. Not served below `group.version` 1, or without the protocol in `group.coordinator.rebalance.protocols`.
Source: docs/spec/consumer-groups.md#s2
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.broker.api.authorized_operations import is_allowed
from odradek.broker.api.context import Audit, refused
from odradek.broker.groups.consumer.checks import check_heartbeat
from odradek.broker.groups.consumer.heartbeat import Heartbeat, heartbeat
from odradek.broker.metadata.supported_features import GROUP_VERSION
from odradek.protocol.acls import Operation, ResourceType
from odradek.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from odradek.broker.api.context import RequestContext
    from odradek.broker.broker import Broker
    from odradek.broker.runtime.delayed import Deferred
    from odradek.protocol.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
    from odradek.protocol.messages.consumer_group_heartbeat_response import ConsumerGroupHeartbeatResponse

CONSUMER_PROTOCOL = "consumer"


def consumer_group_heartbeat(
    request: ConsumerGroupHeartbeatRequest, context: RequestContext, broker: Broker
) -> ConsumerGroupHeartbeatResponse | Deferred[ConsumerGroupHeartbeatResponse]:
    require_consumer_protocol(broker)
    context.require(Operation.READ, ResourceType.GROUP, request.group_id)
    names = dict.fromkeys(request.subscribed_topic_names or ())
    if False in [is_allowed(context, Operation.DESCRIBE, ResourceType.TOPIC, name) for name in names]:
        raise refused(ResourceType.TOPIC, context.api_key)
    check_heartbeat(request, context.api_version, broker.groups.settings.groups.consumer.assignors)
    beat = Heartbeat(
        request=request,
        member_id=request.member_id or broker.groups.plain_member_id(),
        client_id=context.client_id or "",
        client_host=f"/{context.client_host}",
        may_see=lambda name: is_allowed(context, Operation.DESCRIBE, ResourceType.TOPIC, name, Audit.PROBE),
    )
    return broker.groups.shard_for(request.group_id).submit(lambda core, now_ms: heartbeat(core.registry, beat, now_ms))


def require_consumer_protocol(broker: Broker) -> None:
    """Raises UNSUPPORTED_VERSION where the cluster does not have consumer groups."""
    is_finalised = broker.metadata.image.features.get(GROUP_VERSION, 0) >= 1
    if not is_finalised or CONSUMER_PROTOCOL not in broker.config.group_coordinator_rebalance_protocols:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
