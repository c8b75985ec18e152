"""Handlers for requests from brokers to the share coordinator (keys 83 to 87). A request can contain several share
partitions, and the coordinator makes a separate decision for each of them.

All of these requests need CLUSTER_ACTION on the cluster, because only brokers send them. Source:
docs/spec/share-groups.md#s1-7, #s4-4.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from odradek.broker.runtime.slices import Steps, in_slices
from odradek.broker.runtime.waiting import NowOrLater, start_coroutine, wait_for_all
from odradek.broker.shares.core.in_flight import StateWrite
from odradek.broker.shares.core.records import (
    loaded_batches,
    pending_form,
    pending_of,
    resolved_of,
    stored_batch,
)
from odradek.broker.shares.core.state import Outcome, SharePartitionKey
from odradek.protocol.acls import CLUSTER_NAME, Operation, ResourceType
from odradek.protocol.errors import ErrorCode, KafkaError, MalformedMessage
from odradek.protocol.kafka_rules import KafkaRules
from odradek.protocol.messages import delete_share_group_state_request as to_delete
from odradek.protocol.messages import delete_share_group_state_response as deleted
from odradek.protocol.messages import initialize_share_group_state_request as to_initialize
from odradek.protocol.messages import initialize_share_group_state_response as initialized
from odradek.protocol.messages import read_share_group_state_request as to_read
from odradek.protocol.messages import read_share_group_state_response as read
from odradek.protocol.messages import read_share_group_state_summary_request as to_summarize
from odradek.protocol.messages import read_share_group_state_summary_response as summarized
from odradek.protocol.messages import write_share_group_state_request as to_write
from odradek.protocol.messages import write_share_group_state_response as written
from odradek.protocol.messages.delete_share_group_state_response import DeleteShareGroupStateResponse
from odradek.protocol.messages.initialize_share_group_state_response import InitializeShareGroupStateResponse
from odradek.protocol.messages.read_share_group_state_response import ReadShareGroupStateResponse
from odradek.protocol.messages.read_share_group_state_summary_response import ReadShareGroupStateSummaryResponse
from odradek.protocol.messages.write_share_group_state_response import WriteShareGroupStateResponse

if TYPE_CHECKING:
    from odradek.broker.api.context import RequestContext
    from odradek.broker.handlers.handler_broker import HandlerBroker
    from odradek.broker.shares.core.state_core import StateCore

MESSAGES: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "The share coordinator does not know this topic partition.",
    ErrorCode.FENCED_LEADER_EPOCH: "A later leader of the topic partition has read the share state.",
}


# Kafka's error messages for a fenced state epoch; see docs/spec/kafka-4.4.md#s1-3.
FENCED_STATE_EPOCH: Final = {
    KafkaRules.KAFKA_4_3: (
        "The share coordinator rejected the request because the share-group state epoch did not match."
    ),
    KafkaRules.KAFKA_4_4: "The coordinator rejected the request because the state epoch did not match.",
}


class RequestedPartition(Protocol):
    @property
    def partition(self) -> int: ...


A = TypeVar("A", bound=RequestedPartition)
A_co = TypeVar("A_co", bound=RequestedPartition, covariant=True)
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
P = TypeVar("P")
P_co = TypeVar("P_co", covariant=True)
M = TypeVar("M")
M_co = TypeVar("M_co", covariant=True)


class RequestedTopic(Protocol[A_co]):
    @property
    def topic_id(self) -> bytes: ...
    @property
    def partitions(self) -> Sequence[A_co]: ...


class PartitionForm(Protocol[P_co]):
    def __call__(self, *, partition: int, error_code: int, error_message: str | None) -> P_co: ...


class TopicForm(Protocol[P, T_co]):
    def __call__(self, *, topic_id: bytes, partitions: list[P]) -> T_co: ...


class ResponseForm(Protocol[T, M_co]):
    def __call__(self, *, results: list[T] = ...) -> M_co: ...


class StateRequestForm(Protocol[A_co]):
    @property
    def group_id(self) -> str: ...
    @property
    def topics(self) -> Sequence[RequestedTopic[A_co]]: ...


NEGATIVE_LEADER_EPOCH: Final = "The leader epoch cannot be a negative number."
NEGATIVE_STATE_EPOCH: Final = "The state epoch cannot be a negative number."


def check_epochs(broker: HandlerBroker, *, leader_epoch: int = 0, state_epoch: int = 0) -> None:
    """Refuses negative epochs, which Kafka 4.3 and earlier accept. Source: docs/spec/kafka-4.4.md#s5-3, S4 to S6.

    raises  KafkaError INVALID_REQUEST
    """
    if broker.rules < KafkaRules.KAFKA_4_4:
        return
    if leader_epoch < 0:
        raise KafkaError(ErrorCode.INVALID_REQUEST, NEGATIVE_LEADER_EPOCH)
    if state_epoch < 0:
        raise KafkaError(ErrorCode.INVALID_REQUEST, NEGATIVE_STATE_EPOCH)


def check_order(broker: HandlerBroker, batches: Sequence[to_write.StateBatch]) -> None:
    """Refuses batches whose last offset is lower than their first offset. Source: docs/spec/kafka-4.4.md#s5-3, S10.

    raises  KafkaError UNKNOWN_SERVER_ERROR, as in Kafka 4.4, where such batches cannot be combined with other batches
    """
    if broker.rules >= KafkaRules.KAFKA_4_4 and any(each.first_offset > each.last_offset for each in batches):
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "A batch of share state ends before it begins.")


def decide_each(
    request: StateRequestForm[A],
    context: RequestContext,
    broker: HandlerBroker,
    decide: Callable[[StateCore, SharePartitionKey, A, int], Outcome[P]],
    forms: tuple[PartitionForm[P], TopicForm[P, T], ResponseForm[T, M]],
) -> NowOrLater[M]:
    """Submits a decision for each share partition. A refusal affects only the result of its own share partition.

    decide  makes the decision and its result for one share partition
    forms   the classes of a partition's result, a topic's result, and the response
    """
    partition_form, topic_form, response_form = forms
    group_id, topics = request.group_id, request.topics
    if group_id == "" or not topics or any(not topic.partitions for topic in topics):
        return response_form(results=[])
    requested = [(topic.topic_id, partition) for topic in topics for partition in topic.partitions]

    def refused(partition: int, error: KafkaError) -> P:
        message = error.message or MESSAGES.get(error.code)
        if message is None and error.code is ErrorCode.FENCED_STATE_EPOCH:
            message = FENCED_STATE_EPOCH[broker.rules]
        return partition_form(partition=partition, error_code=error.code.value, error_message=message)

    def answer(topic_id: bytes, partition: A) -> NowOrLater[P]:
        try:
            context.require(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME)
            if partition.partition < 0:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Partition numbers cannot be negative.")
            key = SharePartitionKey(group_id, topic_id, partition.partition)
            return broker.share_coordinator.shard_for(key).submit(
                lambda core, now_ms: decide(core, key, partition, now_ms)
            )
        except KafkaError as error:
            return refused(partition.partition, error)

    async def together(answers: list[NowOrLater[P]]) -> M:
        results = await wait_for_all(answers)
        given = iter(
            refused(partition.partition, result) if isinstance(result, KafkaError) else result
            for (_, partition), result in zip(requested, results, strict=True)
        )
        return response_form(
            results=[
                topic_form(topic_id=each.topic_id, partitions=[next(given) for _ in each.partitions]) for each in topics
            ]
        )

    def steps() -> Steps[NowOrLater[M]]:
        answers: list[NowOrLater[P]] = []
        for topic_id, partition in requested:
            answers.append(answer(topic_id, partition))
            yield
        return start_coroutine(together(answers))

    return in_slices(steps())


def initialize_share_group_state(
    request: to_initialize.InitializeShareGroupStateRequest, context: RequestContext, broker: HandlerBroker
) -> NowOrLater[InitializeShareGroupStateResponse]:
    """Handles InitializeShareGroupState (key 83), version 0, which initialises the state of share partitions, replacing
    any stored state."""
    form = initialized.PartitionResult

    def decide(
        core: StateCore, key: SharePartitionKey, requested: to_initialize.PartitionData, now_ms: int
    ) -> Outcome[initialized.PartitionResult]:
        check_epochs(broker, state_epoch=requested.state_epoch)
        outcome = core.initialize(key, requested.state_epoch, requested.start_offset, now_ms)
        return Outcome(form(partition=requested.partition), outcome.records)

    forms = form, initialized.InitializeStateResult, InitializeShareGroupStateResponse
    return decide_each(request, context, broker, decide, forms)


def read_share_group_state(
    request: to_read.ReadShareGroupStateRequest, context: RequestContext, broker: HandlerBroker
) -> NowOrLater[ReadShareGroupStateResponse]:
    """Handles ReadShareGroupState (key 84), version 0, which a new leader of share partitions sends to read their
    state.

    Fences earlier leaders, so that they can no longer write the state.
    """

    def decide(
        core: StateCore, key: SharePartitionKey, requested: to_read.PartitionData, now_ms: int
    ) -> Outcome[read.PartitionResult]:
        check_epochs(broker, leader_epoch=requested.leader_epoch)
        outcome = core.read(key, requested.leader_epoch, now_ms)
        stored = outcome.response
        assert stored is not None
        result = read.PartitionResult(
            partition=requested.partition,
            state_epoch=stored.state_epoch,
            start_offset=stored.start_offset,
            state_batches=[stored_batch(read.StateBatch, each) for each in stored.batches],
            txn_staged=[pending_form(read.TxnStagedRange, each) for each in stored.pending],
        )
        return Outcome(result, outcome.records)

    forms = read.PartitionResult, read.ReadStateResult, ReadShareGroupStateResponse
    return decide_each(request, context, broker, decide, forms)


def write_share_group_state(
    request: to_write.WriteShareGroupStateRequest, context: RequestContext, broker: HandlerBroker
) -> NowOrLater[WriteShareGroupStateResponse]:
    """Handles WriteShareGroupState (key 85), versions 0-1, which a leader sends to store changes to the state.

    v1 adds the number of finished records (KIP-1226). Private tagged fields contain the acknowledgements that are
    pending in transactions (KIP-1289).
    """
    form = written.PartitionResult

    def decide(
        core: StateCore, key: SharePartitionKey, requested: to_write.PartitionData, now_ms: int
    ) -> Outcome[written.PartitionResult]:
        check_epochs(broker, leader_epoch=requested.leader_epoch, state_epoch=requested.state_epoch)
        try:
            pending, resolved = pending_of(requested.txn_staged), resolved_of(requested.txn_resolved)
        except MalformedMessage as error:
            raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from None
        check_order(broker, requested.state_batches)
        batches = loaded_batches(requested.state_batches)
        write = StateWrite(
            requested.start_offset, requested.delivery_complete_count, batches, pending=pending, resolved=resolved
        )
        must_sync = any(each.producer_id in broker.two_phase for each in pending)
        outcome = core.write(key, requested.state_epoch, requested.leader_epoch, write, now_ms, must_sync=must_sync)
        return Outcome(form(partition=requested.partition), outcome.records, must_sync=outcome.must_sync)

    return decide_each(request, context, broker, decide, (form, written.WriteStateResult, WriteShareGroupStateResponse))


def delete_share_group_state(
    request: to_delete.DeleteShareGroupStateRequest, context: RequestContext, broker: HandlerBroker
) -> NowOrLater[DeleteShareGroupStateResponse]:
    """Handles DeleteShareGroupState (key 86), version 0, which deletes the state of share partitions when it is no
    longer needed."""
    form = deleted.PartitionResult

    def decide(
        core: StateCore, key: SharePartitionKey, requested: to_delete.PartitionData, now_ms: int
    ) -> Outcome[deleted.PartitionResult]:
        return Outcome(form(partition=requested.partition), core.delete(key).records)

    return decide_each(
        request, context, broker, decide, (form, deleted.DeleteStateResult, DeleteShareGroupStateResponse)
    )


def read_share_group_state_summary(
    request: to_summarize.ReadShareGroupStateSummaryRequest, context: RequestContext, broker: HandlerBroker
) -> NowOrLater[ReadShareGroupStateSummaryResponse]:
    """Handles ReadShareGroupStateSummary (key 87), versions 0-1, which returns the start offsets of share partitions
    for administrators.

    v1 adds the number of finished records (KIP-1226).
    """

    def decide(
        core: StateCore, key: SharePartitionKey, requested: to_summarize.PartitionData, now_ms: int
    ) -> Outcome[summarized.PartitionResult]:
        summary = core.summarize(key)
        return Outcome(
            summarized.PartitionResult(
                partition=requested.partition,
                state_epoch=summary.state_epoch,
                leader_epoch=summary.leader_epoch,
                start_offset=summary.start_offset,
                delivery_complete_count=summary.delivery_complete_count,
                txn_staged_count=summary.pending_count,
            )
        )

    forms = summarized.PartitionResult, summarized.ReadStateSummaryResult, ReadShareGroupStateSummaryResponse
    return decide_each(request, context, broker, decide, forms)
