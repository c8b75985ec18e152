"""DeleteShareGroupOffsets (key 92), version 0: a share group without members forgets where it stood in some topics.

Needs DELETE on the group, READ on each topic. Source: docs/spec/share-groups.md#s2-8
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.broker.groups.share.member import Partitions
from odradek.broker.groups.share.state import begin_deletion, require_empty
from odradek.broker.shares.leader import group_state
from odradek.protocol.acls import Operation, ResourceType
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.delete_share_group_offsets_response import (
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from odradek.broker.api.context import RequestContext
    from odradek.broker.broker import Broker
    from odradek.broker.runtime.delayed import Deferred
    from odradek.broker.shares.leader.group_state import Refusals
    from odradek.protocol.messages.delete_share_group_offsets_request import DeleteShareGroupOffsetsRequest


def delete_share_group_offsets(
    request: DeleteShareGroupOffsetsRequest, context: RequestContext, broker: Broker
) -> DeleteShareGroupOffsetsResponse | Deferred[DeleteShareGroupOffsetsResponse]:
    broker.shares.require_enabled()
    group_id = request.group_id
    context.require(Operation.DELETE, ResourceType.GROUP, group_id)
    if group_id == "":
        raise KafkaError(ErrorCode.INVALID_GROUP_ID, "The group id is empty.")
    shard = broker.groups.shard_for(group_id)
    shard.look(lambda core: require_empty(core.registry, group_id, may_be_missing=False))
    refused: dict[str, KafkaError] = {}
    for topic in request.topics:
        try:
            context.require(Operation.READ, ResourceType.TOPIC, topic.topic_name)
        except KafkaError as error:
            refused[topic.topic_name] = error
    wanted = [topic.topic_name for topic in request.topics if topic.topic_name not in refused]

    def recorded(gone: Partitions) -> DeleteShareGroupOffsetsResponse | Deferred[DeleteShareGroupOffsetsResponse]:
        return group_state.once_recorded(
            group_state.delete(broker, group_id, gone), lambda refusals: response(gone, refusals)
        )

    def response(gone: Partitions, refusals: Refusals) -> DeleteShareGroupOffsetsResponse:
        first: dict[bytes, KafkaError] = {}  # of each topic
        for (topic_id, _), error in refusals.items():
            first.setdefault(topic_id, error)
        return DeleteShareGroupOffsetsResponse(
            responses=[result(topic.topic_name, gone, first) for topic in request.topics]
        )

    def result(
        name: str, gone: Partitions, refusals: Mapping[bytes, KafkaError]
    ) -> DeleteShareGroupOffsetsResponseTopic:
        known = broker.metadata.image.topics.get(name)
        if name in refused:
            error = refused[name]
        elif known is None:
            error = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.")
        elif known.topic_id not in gone:
            error = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "There is no offset information to delete.")
        elif known.topic_id in refusals:
            error = refusals[known.topic_id]
        else:
            return DeleteShareGroupOffsetsResponseTopic(topic_name=name, topic_id=known.topic_id)
        return DeleteShareGroupOffsetsResponseTopic(
            topic_name=name, error_code=error.code.value, error_message=error.message
        )

    return group_state.once_recorded(
        shard.submit(lambda core, now_ms: begin_deletion(core.registry, group_id, wanted, now_ms)), recorded
    )
