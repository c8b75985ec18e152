"""Requests of brokers to the share coordinator (keys 83 to 87): about many share partitions, each on its own.

All need CLUSTER_ACTION on the cluster: only brokers ask. Source: docs/spec/share-groups.md#s1-7, #s4-4.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from odradek.broker.runtime.delayed import all_of
from odradek.broker.runtime.slices import in_slices
from odradek.broker.shares.core.in_flight import StateWrite
from odradek.broker.shares.core.records import pending_form, pending_of, resolved_of
from odradek.broker.shares.core.state import Outcome, SharePartitionKey, StateBatch
from odradek.protocol.acls import CLUSTER_NAME, Operation, ResourceType
from odradek.protocol.errors import ErrorCode, KafkaError, MalformedMessage
from odradek.protocol.messages import (
    delete_share_group_state_response,
    initialize_share_group_state_response,
    read_share_group_state_response,
    read_share_group_state_summary_response,
    write_share_group_state_response,
)
from odradek.protocol.messages.delete_share_group_state_response import DeleteShareGroupStateResponse
from odradek.protocol.messages.initialize_share_group_state_response import InitializeShareGroupStateResponse
from odradek.protocol.messages.read_share_group_state_response import ReadShareGroupStateResponse
from odradek.protocol.messages.read_share_group_state_summary_response import ReadShareGroupStateSummaryResponse
from odradek.protocol.messages.write_share_group_state_response import WriteShareGroupStateResponse

if TYPE_CHECKING:
    from odradek.broker.api.context import RequestContext
    from odradek.broker.broker import Broker
    from odradek.broker.runtime.delayed import Deferred
    from odradek.broker.runtime.slices import Steps
    from odradek.broker.shares.core.state_core import StateCore
    from odradek.protocol.messages import (
        delete_share_group_state_request,
        initialize_share_group_state_request,
        read_share_group_state_request,
        read_share_group_state_summary_request,
        write_share_group_state_request,
    )

MESSAGES: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "The share coordinator knows no such topic partition.",
    ErrorCode.FENCED_STATE_EPOCH: "The share state was reset or deleted since this state epoch.",
    ErrorCode.FENCED_LEADER_EPOCH: "A later leader of the topic partition has read the share state.",
}


class AskedPartition(Protocol):
    @property
    def partition(self) -> int: ...


A = TypeVar("A", bound=AskedPartition)
A_co = TypeVar("A_co", bound=AskedPartition, covariant=True)
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
P = TypeVar("P")
P_co = TypeVar("P_co", covariant=True)
M = TypeVar("M")


class AskedTopic(Protocol[A_co]):
    @property
    def topic_id(self) -> bytes: ...
    @property
    def partitions(self) -> Sequence[A_co]: ...


class PartitionForm(Protocol[P_co]):
    def __call__(self, *, partition: int, error_code: int, error_message: str | None) -> P_co: ...


class TopicForm(Protocol[P, T_co]):
    def __call__(self, *, topic_id: bytes, partitions: list[P]) -> T_co: ...


def ask_each(
    group_id: str,
    topics: Sequence[AskedTopic[A]],
    context: RequestContext,
    broker: Broker,
    decide: Callable[[StateCore, SharePartitionKey, A, int], Outcome[P]],
    partition_form: PartitionForm[P],
    topic_form: TopicForm[P, T],
    make: Callable[[list[T]], M],
) -> M | Deferred[M]:
    """Asks the core of each share partition; a refusal is the result for that one only.

    decide  answers with the result for one share partition
    make    builds the response from the results by topic
    """
    if group_id == "" or not topics or any(not topic.partitions for topic in topics):
        return make([])
    asked = [(topic.topic_id, partition) for topic in topics for partition in topic.partitions]

    def refused(partition: int, error: KafkaError) -> P:
        message = error.message or MESSAGES.get(error.code)
        return partition_form(partition=partition, error_code=error.code.value, error_message=message)

    def answer(topic_id: bytes, partition: A) -> P | Deferred[P]:
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

    def together(results: list[P]) -> M:
        given = iter(results)
        return make(
            [topic_form(topic_id=each.topic_id, partitions=[next(given) for _ in each.partitions]) for each in topics]
        )

    def steps() -> Steps[M | Deferred[M]]:
        answers: list[P | Deferred[P]] = []
        for topic_id, partition in asked:
            answers.append(answer(topic_id, partition))
            yield
        return all_of(answers, lambda index, error: refused(asked[index][1].partition, error), together)

    return in_slices(steps())


def initialize_share_group_state(
    request: initialize_share_group_state_request.InitializeShareGroupStateRequest,
    context: RequestContext,
    broker: Broker,
) -> InitializeShareGroupStateResponse | Deferred[InitializeShareGroupStateResponse]:
    """InitializeShareGroupState (key 83), version 0: the state of share partitions begins, or begins anew."""
    form = initialize_share_group_state_response.PartitionResult

    def decide(
        core: StateCore,
        key: SharePartitionKey,
        partition: initialize_share_group_state_request.PartitionData,
        now_ms: int,
    ) -> Outcome[initialize_share_group_state_response.PartitionResult]:
        outcome = core.initialize(key, partition.state_epoch, partition.start_offset, now_ms)
        return Outcome(form(partition=partition.partition), outcome.records)

    return ask_each(
        request.group_id,
        request.topics,
        context,
        broker,
        decide,
        form,
        initialize_share_group_state_response.InitializeStateResult,
        lambda results: InitializeShareGroupStateResponse(results=results),
    )


def read_share_group_state(
    request: read_share_group_state_request.ReadShareGroupStateRequest, context: RequestContext, broker: Broker
) -> ReadShareGroupStateResponse | Deferred[ReadShareGroupStateResponse]:
    """ReadShareGroupState (key 84), version 0: state for a leader that begins to serve share partitions.

    Leaders before it can write no more.
    """
    form, batch_form = read_share_group_state_response.PartitionResult, read_share_group_state_response.StateBatch

    def decide(
        core: StateCore, key: SharePartitionKey, partition: read_share_group_state_request.PartitionData, now_ms: int
    ) -> Outcome[read_share_group_state_response.PartitionResult]:
        outcome = core.read(key, partition.leader_epoch, now_ms)
        stored = outcome.response
        assert stored is not None
        result = form(
            partition=partition.partition,
            state_epoch=stored.state_epoch,
            start_offset=stored.start_offset,
            state_batches=[
                batch_form(
                    first_offset=each.first_offset,
                    last_offset=each.last_offset,
                    delivery_state=each.delivery_state,
                    delivery_count=each.delivery_count,
                )
                for each in stored.batches
            ],
            txn_staged=[pending_form(read_share_group_state_response.TxnStagedRange, each) for each in stored.pending],
        )
        return Outcome(result, outcome.records)

    return ask_each(
        request.group_id,
        request.topics,
        context,
        broker,
        decide,
        form,
        read_share_group_state_response.ReadStateResult,
        lambda results: ReadShareGroupStateResponse(results=results),
    )


def write_share_group_state(
    request: write_share_group_state_request.WriteShareGroupStateRequest, context: RequestContext, broker: Broker
) -> WriteShareGroupStateResponse | Deferred[WriteShareGroupStateResponse]:
    """WriteShareGroupState (key 85), versions 0-1: state that a leader has to have stored.

    v1: the number of records that are done with (KIP-1226). Private tags: what is pending in transactions (KIP-1289).
    """
    form = write_share_group_state_response.PartitionResult

    def decide(
        core: StateCore, key: SharePartitionKey, partition: write_share_group_state_request.PartitionData, now_ms: int
    ) -> Outcome[write_share_group_state_response.PartitionResult]:
        try:
            pending, resolved = pending_of(partition.txn_staged), resolved_of(partition.txn_resolved)
        except MalformedMessage as error:
            raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from None
        batches = [
            StateBatch(each.first_offset, each.last_offset, each.delivery_state, each.delivery_count)
            for each in partition.state_batches
        ]
        write = StateWrite(
            partition.start_offset, partition.delivery_complete_count, batches, pending=pending, resolved=resolved
        )
        must_sync = any(each.producer_id in broker.two_phase for each in pending)
        outcome = core.write(key, partition.state_epoch, partition.leader_epoch, write, now_ms, must_sync=must_sync)
        return Outcome(form(partition=partition.partition), outcome.records, must_sync=outcome.must_sync)

    return ask_each(
        request.group_id,
        request.topics,
        context,
        broker,
        decide,
        form,
        write_share_group_state_response.WriteStateResult,
        lambda results: WriteShareGroupStateResponse(results=results),
    )


def delete_share_group_state(
    request: delete_share_group_state_request.DeleteShareGroupStateRequest, context: RequestContext, broker: Broker
) -> DeleteShareGroupStateResponse | Deferred[DeleteShareGroupStateResponse]:
    """DeleteShareGroupState (key 86), version 0: the state of share partitions is no longer needed."""
    form = delete_share_group_state_response.PartitionResult

    def decide(
        core: StateCore, key: SharePartitionKey, partition: delete_share_group_state_request.PartitionData, now_ms: int
    ) -> Outcome[delete_share_group_state_response.PartitionResult]:
        return Outcome(form(partition=partition.partition), core.delete(key).records)

    return ask_each(
        request.group_id,
        request.topics,
        context,
        broker,
        decide,
        form,
        delete_share_group_state_response.DeleteStateResult,
        lambda results: DeleteShareGroupStateResponse(results=results),
    )


def read_share_group_state_summary(
    request: read_share_group_state_summary_request.ReadShareGroupStateSummaryRequest,
    context: RequestContext,
    broker: Broker,
) -> ReadShareGroupStateSummaryResponse | Deferred[ReadShareGroupStateSummaryResponse]:
    """ReadShareGroupStateSummary (key 87), versions 0-1: where share partitions stand, for people.

    v1: the number of records that are done with (KIP-1226).
    """
    form = read_share_group_state_summary_response.PartitionResult

    def decide(
        core: StateCore,
        key: SharePartitionKey,
        partition: read_share_group_state_summary_request.PartitionData,
        now_ms: int,
    ) -> Outcome[read_share_group_state_summary_response.PartitionResult]:
        summary = core.summarize(key)
        return Outcome(
            form(
                partition=partition.partition,
                state_epoch=summary.state_epoch,
                leader_epoch=summary.leader_epoch,
                start_offset=summary.start_offset,
                delivery_complete_count=summary.delivery_complete_count,
                txn_staged_count=summary.pending_count,
            )
        )

    return ask_each(
        request.group_id,
        request.topics,
        context,
        broker,
        decide,
        form,
        read_share_group_state_summary_response.ReadStateSummaryResult,
        lambda results: ReadShareGroupStateSummaryResponse(results=results),
    )
