"""CreatePartitions (key 37), versions 0-3: adds partitions to topics; removing them is not possible.

v2: flexible. v3: a quota may refuse topics. Needs ALTER on each topic. Answered when the partitions can be written to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.broker.api.authorized_operations import is_allowed
from odradek.broker.metadata.decision import Decision
from odradek.broker.metadata.topics import MorePartitions, charge_of
from odradek.broker.metadata.topics import create_partitions as decide
from odradek.broker.runtime.delayed import Deferred
from odradek.protocol.acls import Operation, ResourceType
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.create_partitions_response import CreatePartitionsResponse, CreatePartitionsTopicResult

if TYPE_CHECKING:
    from odradek.broker.api.context import RequestContext
    from odradek.broker.broker import Broker
    from odradek.broker.metadata.image import MetadataImage
    from odradek.protocol.messages.create_partitions_request import CreatePartitionsRequest

STRICT_SINCE = 3  # quotas: THROTTLING_QUOTA_EXCEEDED

Result = tuple[str, KafkaError | None]


def create_partitions(
    request: CreatePartitionsRequest, context: RequestContext, broker: Broker
) -> Deferred[CreatePartitionsResponse]:
    wishes = []
    refused: list[Result] = []
    for topic in request.topics:
        if is_allowed(context, Operation.ALTER, ResourceType.TOPIC, topic.name):
            assignments = topic.assignments
            chosen = None if assignments is None else [assignment.broker_ids for assignment in assignments]
            wishes.append(MorePartitions(topic.name, topic.count, chosen))
        else:
            refused.append((topic.name, KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)))
    answer: Deferred[CreatePartitionsResponse] = Deferred()

    charge = charge_of(context, STRICT_SINCE)

    def turn(image: MetadataImage) -> Decision[list[Result]]:
        decision = decide(image, wishes, node=broker.metadata.node, charge=charge)
        return Decision(decision.response) if request.validate_only else decision

    def done(created: Deferred[list[Result]]) -> None:
        try:
            results = created.outcome()
        except KafkaError as error:
            answer.fail(error)
            return
        assert isinstance(results, list)
        answer.resolve(CreatePartitionsResponse(results=[_result(*one) for one in refused + results]))

    broker.metadata.submit(turn).when_done(done)
    return answer


def _result(name: str, error: KafkaError | None) -> CreatePartitionsTopicResult:
    if error is None:
        return CreatePartitionsTopicResult(name=name, error_message=None)
    return CreatePartitionsTopicResult(name=name, error_code=error.code.value, error_message=error.message)
