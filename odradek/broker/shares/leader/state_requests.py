"""What requests 83 to 87 have in common: they ask the share coordinator about many share partitions, each on its own.

Only brokers ask: all need CLUSTER_ACTION on the cluster. Source: docs/spec/share-groups.md#s1-7, #s4-4.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from odradek.broker.runtime.delayed import all_of
from odradek.broker.shares.core.state import SharePartitionKey
from odradek.protocol.acls import CLUSTER_NAME, Operation, ResourceType
from odradek.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from odradek.broker.api.context import RequestContext
    from odradek.broker.runtime.delayed import Deferred
    from odradek.broker.shares.core.state import Outcome
    from odradek.broker.shares.core.state_core import StateCore
    from odradek.broker.shares.leader.shares import ShareBroker


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
P = TypeVar("P")
M = TypeVar("M")


class AskedTopic(Protocol[A_co]):
    @property
    def topic_id(self) -> bytes: ...
    @property
    def partitions(self) -> Sequence[A_co]: ...


def ask_each(
    group_id: str,
    topics: Sequence[AskedTopic[A]],
    context: RequestContext,
    broker: ShareBroker,
    *,
    decide: Callable[[StateCore, SharePartitionKey, A, int], Outcome[P]],
    refused: Callable[[int, int, str | None], P],
    topic_result: Callable[[bytes, list[P]], T],
    make: Callable[[list[T]], M],
) -> M | Deferred[M]:
    """
    decide   what the core is asked about one share partition; its answer is the result for it
    refused  the result for a partition that was not: its number, the code, the message
    """
    if group_id == "" or not topics or any(not topic.partitions for topic in topics):
        return make([])
    asked = [(topic.topic_id, partition) for topic in topics for partition in topic.partitions]

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
            return refused(partition.partition, error.code.value, message_of(error))

    def failed(index: int, error: KafkaError) -> P:
        return refused(asked[index][1].partition, error.code.value, message_of(error))

    def together(results: list[P]) -> M:
        given = iter(results)
        return make([topic_result(topic.topic_id, [next(given) for _ in topic.partitions]) for topic in topics])

    return all_of([answer(*each) for each in asked], failed, together)


def message_of(error: KafkaError) -> str | None:
    return error.message or MESSAGES.get(error.code)
