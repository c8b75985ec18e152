"""Handlers for streams groups (KIP-1071): member heartbeats, and descriptions for administrators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from odradek.broker.api.authorized_operations import is_allowed
from odradek.broker.api.context import Audit, RequestContext
from odradek.broker.groups.common.outcome import DESCRIPTIONS_GOT
from odradek.broker.groups.streams.descriptions import check_form
from odradek.broker.groups.streams.form import check_heartbeat
from odradek.broker.groups.streams.heartbeat import StreamsHeartbeat
from odradek.broker.groups.streams.topology import check_patterns, check_topics
from odradek.broker.handlers.groups.group_administration import describe_groups_in_steps
from odradek.broker.metadata.supported_features import STREAMS_VERSION
from odradek.broker.metadata.topic_names import is_valid_topic_name
from odradek.broker.runtime.slices import Steps, in_slices, sliced
from odradek.broker.runtime.waiting import Deferred, start_coroutine, start_unattended, wait_for_answer
from odradek.protocol.acls import CLUSTER_NAME, Operation, ResourceType
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.streams_group_describe_response import DescribedGroup, StreamsGroupDescribeResponse
from odradek.protocol.messages.streams_group_topology_description_update_response import (
    StreamsGroupTopologyDescriptionUpdateResponse,
)

if TYPE_CHECKING:
    from odradek.broker.groups.streams.heartbeat import StreamsHeartbeatResult
    from odradek.broker.groups.streams.topology import TopicInfo
    from odradek.broker.handlers.handler_broker import HandlerBroker
    from odradek.broker.runtime.waiting import NowOrLater
    from odradek.protocol.messages.streams_group_describe_request import StreamsGroupDescribeRequest
    from odradek.protocol.messages.streams_group_heartbeat_request import StreamsGroupHeartbeatRequest, Topology
    from odradek.protocol.messages.streams_group_heartbeat_response import StreamsGroupHeartbeatResponse
    from odradek.protocol.messages.streams_group_topology_description_update_request import (
        StreamsGroupTopologyDescriptionUpdateRequest,
    )

STREAMS_PROTOCOL = "streams"


def streams_group_heartbeat(
    request: StreamsGroupHeartbeatRequest, context: RequestContext, broker: HandlerBroker
) -> NowOrLater[StreamsGroupHeartbeatResponse]:
    """Handles StreamsGroupHeartbeat (key 88), versions 0-1, which members send to join, stay in and leave a streams
    group (KIP-1071).

    v1 adds the acceptable recovery lag, and a flag in the response that requests a topology description. Needs READ on
    the group and DESCRIBE on all topics of the topology. The response is sent once the decision is recorded. After
    that, missing internal topics are created if the member has CREATE on the cluster or on each of these topics. Later
    heartbeats assign the new topics' tasks. The API is not supported below `streams.version` 1, or if
    `group.coordinator.rebalance.protocols` does not contain the protocol. Source: docs/spec/streams-groups.md#s2-2
    """
    require_streams_protocol(broker)
    context.require(Operation.READ, ResourceType.GROUP, request.group_id)
    if request.topology is not None:
        checked = in_slices(_checked_topics(request.topology, context), ends_with_client=True)
        if isinstance(checked, Deferred):
            return start_coroutine(_heartbeat_after_check(checked, request, context, broker), ends_with_client=True)
    return _decide_heartbeat(request, context, broker)


def _checked_topics(topology: Topology, context: RequestContext) -> Steps[bool]:
    """Checks a topology's topics. Yields after each topic, because a member can send a very large number of topics.
    Raises KafkaError."""
    yield from check_topics(
        topology,
        is_valid_topic_name,
        lambda name: is_allowed(context, Operation.DESCRIBE, ResourceType.TOPIC, name),
    )
    return True


async def _heartbeat_after_check(
    checked: Deferred[bool], request: StreamsGroupHeartbeatRequest, context: RequestContext, broker: HandlerBroker
) -> StreamsGroupHeartbeatResponse:
    await checked
    return await wait_for_answer(_decide_heartbeat(request, context, broker))


def _decide_heartbeat(
    request: StreamsGroupHeartbeatRequest, context: RequestContext, broker: HandlerBroker
) -> NowOrLater[StreamsGroupHeartbeatResponse]:
    """Passes a heartbeat to the group coordinator, after the topics in the heartbeat have been checked."""
    if request.topology is not None:
        check_patterns(request.topology)
    owned = check_heartbeat(request, broker.rules)
    beat = StreamsHeartbeat(
        request,
        context.api_version,
        owned,
        client_id=context.client_id or "",
        client_host=f"/{context.connection.client_host}",
        may_create=_may_create(context),
    )
    shard = broker.groups.shard_for(request.group_id)
    heard = shard.submit(lambda core, now_ms: core.streams_heartbeat(beat, now_ms))
    if isinstance(heard, Deferred):
        return start_coroutine(_answer_after_recording(heard, request.group_id, broker))
    return _response_of(heard, request.group_id, broker)


async def _answer_after_recording(
    heard: Deferred[StreamsHeartbeatResult], group_id: str, broker: HandlerBroker
) -> StreamsGroupHeartbeatResponse:
    return _response_of(await heard, group_id, broker)


def _response_of(heard: StreamsHeartbeatResult, group_id: str, broker: HandlerBroker) -> StreamsGroupHeartbeatResponse:
    """Returns the response to a heartbeat whose records have been written.

    If the heartbeat found that internal topics are missing, this function also starts creating them, but the response
    does not wait for their creation.
    """
    if heard.topics:
        delay_ms = broker.steps.internal_topics_delay_ms(heard.response.heartbeat_interval_ms)
        start_unattended(_create_internal_topics(broker, group_id, heard.topics, delay_ms))
    return heard.response


def require_streams_protocol(broker: HandlerBroker) -> None:
    """Raises UNSUPPORTED_VERSION if streams groups are disabled in the cluster."""
    is_finalised = broker.metadata.image.features.get(STREAMS_VERSION, 0) >= 1
    if not is_finalised or STREAMS_PROTOCOL not in broker.config.group_coordinator_rebalance_protocols:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)


def _may_create(context: RequestContext) -> Callable[[str], bool]:
    """Returns a function that decides whether the client may create a topic. The function's first call checks whether
    the client may create all topics, and later calls reuse the result."""
    may_create_all: bool | None = None

    def may_create(name: str) -> bool:
        nonlocal may_create_all
        if may_create_all is None:
            may_create_all = is_allowed(context, Operation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME, Audit.PROBE)
        return may_create_all or is_allowed(context, Operation.CREATE, ResourceType.TOPIC, name)

    return may_create


async def _create_internal_topics(
    broker: HandlerBroker, group_id: str, topics: Sequence[TopicInfo], delay_ms: int
) -> None:
    """Creates internal topics of a group after a delay. Then reports to the group which topics could not be created."""
    from odradek.broker.metadata.topics import NewTopic

    if delay_ms:
        due: Deferred[None] = Deferred()
        broker.timers.after(delay_ms, partial(due.resolve, None))
        await due
    new_topics = [
        NewTopic(
            topic.name,
            topic.partitions,
            topic.replication_factor if topic.replication_factor > 0 else None,
            configs=topic.configs,
        )
        for topic in topics
    ]
    try:
        results = await broker.auto_creation.create(new_topics)
        errors = {result.name: result.error for result in results if result.error is not None}
    except KafkaError as error:
        errors = {topic.name: error for topic in topics}
    failures = {
        name: error.message or error.code.name
        for name, error in errors.items()
        if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS
    }
    names = [topic.name for topic in topics]
    with suppress(KafkaError):  # `__consumer_offsets` may have been deleted together with all groups
        broker.groups.shard_for(group_id).submit_maintenance(
            lambda core, now_ms: core.internal_topics_created(group_id, names, failures, now_ms)
        )


@sliced
def streams_group_describe(
    request: StreamsGroupDescribeRequest, context: RequestContext, broker: HandlerBroker
) -> Steps[StreamsGroupDescribeResponse]:
    """Handles StreamsGroupDescribe (key 89), versions 0-1, which returns the epochs, topology, members and tasks of
    streams groups.

    v1 adds the topology description (KIP-1331) and the assignor. Needs DESCRIBE on each group and on all topics of its
    topology. Source: docs/spec/streams-groups.md#s1-3
    """
    require_streams_protocol(broker)
    include = request.include_authorized_operations
    describe = partial(_describe_group, request.include_topology_description)
    groups = yield from describe_groups_in_steps(request.group_ids, describe, include, context, broker)
    return StreamsGroupDescribeResponse(groups=groups)


def _describe_group(
    includes_description: bool, group_id: str, context: RequestContext, broker: HandlerBroker
) -> DescribedGroup:
    try:
        context.require(Operation.DESCRIBE, ResourceType.GROUP, group_id)
        if group_id == "":
            raise KafkaError(ErrorCode.INVALID_GROUP_ID)
        shard = broker.groups.shard_for(group_id)
        group = shard.read_state(
            lambda core: core.describe_streams_group(group_id, includes_description=includes_description)
        )
        if not all(is_allowed(context, Operation.DESCRIBE, ResourceType.TOPIC, name) for name in _topics_of(group)):
            what = "The described group uses topics that the client is not authorized to describe."
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, what)
        if group.topology_description is not None:
            shard.read_state(lambda core: core.count(DESCRIPTIONS_GOT))
    except KafkaError as error:
        return DescribedGroup(group_id=group_id, error_code=error.code.value, error_message=error.message)
    return group


async def streams_group_topology_description_update(
    request: StreamsGroupTopologyDescriptionUpdateRequest, context: RequestContext, broker: HandlerBroker
) -> StreamsGroupTopologyDescriptionUpdateResponse:
    """Handles StreamsGroupTopologyDescriptionUpdate (key 93), version 0, which a member sends to describe the topology
    of its application.

    Needs READ on the group. The API is supported if `group.streams.topology.description.plugin.class` names Kafka's
    in-memory store, which selects this broker's own store. Source: docs/spec/streams-groups.md#s10
    """
    require_streams_protocol(broker)
    context.require(Operation.READ, ResourceType.GROUP, request.group_id)
    if not broker.groups.settings.groups.streams.keeps_descriptions:
        what = "The broker has no streams group topology description plugin configured."
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, what)
    check_form(request)
    shard = broker.groups.shard_for(request.group_id)
    await wait_for_answer(shard.submit(lambda core, now_ms: core.begin_description(request, now_ms)))
    await wait_for_answer(shard.submit(lambda core, now_ms: core.description_stored(request, now_ms)))
    return StreamsGroupTopologyDescriptionUpdateResponse()


def _topics_of(group: DescribedGroup) -> list[str]:
    subtopologies = [] if group.topology is None else group.topology.subtopologies or []
    names: set[str] = set()
    for each in subtopologies:
        names.update(each.source_topics, each.repartition_sink_topics)
        names.update(topic.name for topic in (*each.state_changelog_topics, *each.repartition_source_topics))
    return sorted(names)
