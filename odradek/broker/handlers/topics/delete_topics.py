"""DeleteTopics (key 20), versions 1-6: by name, from v6 on also by topic id.

v4: flexible. v5: answers an error message. Needs DELETE on the cluster, or DESCRIBE and DELETE on each topic; a client
that may not DESCRIBE a topic given by id is not told its name, and one that may is told that a topic is missing.
Answered when the topics cannot be reached any more; their files go later.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.broker.api.authorized_operations import is_allowed
from odradek.broker.api.context import Audit, refused
from odradek.broker.metadata.topics import DeletedTopic, charge_of
from odradek.broker.metadata.topics import delete_topics as decide
from odradek.broker.runtime.delayed import Deferred
from odradek.protocol.acls import CLUSTER_NAME, Operation, ResourceType
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.delete_topics_response import DeletableTopicResult, DeleteTopicsResponse
from odradek.protocol.struct import ZERO_UUID

if TYPE_CHECKING:
    from odradek.broker.api.context import RequestContext
    from odradek.broker.broker import Broker
    from odradek.protocol.messages.delete_topics_request import DeleteTopicsRequest

TOPIC_IDS_SINCE = 6
STRICT_SINCE = 5  # quotas: THROTTLING_QUOTA_EXCEEDED

Wish = tuple[str | None, bytes]


def delete_topics(
    request: DeleteTopicsRequest, context: RequestContext, broker: Broker
) -> Deferred[DeleteTopicsResponse]:
    if not broker.config.delete_topic_enable:
        raise KafkaError(ErrorCode.TOPIC_DELETION_DISABLED)
    wishes: list[Wish]
    if context.api_version >= TOPIC_IDS_SINCE:
        wishes = [(topic.name, topic.topic_id) for topic in request.topics]
    else:
        wishes = [(name, ZERO_UUID) for name in request.topic_names]
    allowed, refusals = _sorted_by_permission(wishes, context, broker)
    answer: Deferred[DeleteTopicsResponse] = Deferred()

    def done(deleted: Deferred[list[DeletedTopic]]) -> None:
        try:
            results = deleted.outcome()
        except KafkaError as error:
            answer.fail(error)
            return
        assert isinstance(results, list)
        answer.resolve(DeleteTopicsResponse(responses=[_result(one) for one in refusals + results]))

    charge = charge_of(context, STRICT_SINCE)
    broker.metadata.submit(lambda image: decide(image, allowed, charge=charge)).when_done(done)
    return answer


def _sorted_by_permission(
    wishes: list[Wish], context: RequestContext, broker: Broker
) -> tuple[list[Wish], list[DeletedTopic]]:
    if is_allowed(context, Operation.DELETE, ResourceType.CLUSTER, CLUSTER_NAME, Audit.PROBE):
        return wishes, []
    image = broker.metadata.image
    allowed: list[Wish] = []
    refusals: list[DeletedTopic] = []
    for name, topic_id in wishes:
        known = image.topics_by_id.get(topic_id)
        actual_name = name if known is None else known.name
        if actual_name is None:
            allowed.append((name, topic_id))  # the answer will be that there is no such id
            continue
        may_describe = is_allowed(context, Operation.DESCRIBE, ResourceType.TOPIC, actual_name)
        may_delete = is_allowed(context, Operation.DELETE, ResourceType.TOPIC, actual_name)
        if may_describe and (may_delete or actual_name not in image.topics):
            allowed.append((name, topic_id))
        else:
            shown = actual_name if name is not None or may_describe else None
            refusals.append(DeletedTopic(shown, topic_id, refused(ResourceType.TOPIC, context.api_key)))
    return allowed, refusals


def _result(deleted: DeletedTopic) -> DeletableTopicResult:
    if deleted.error is None:
        return DeletableTopicResult(name=deleted.name, topic_id=deleted.topic_id)
    return DeletableTopicResult(
        name=deleted.name,
        topic_id=deleted.topic_id,
        error_code=deleted.error.code.value,
        error_message=deleted.error.message,
    )
