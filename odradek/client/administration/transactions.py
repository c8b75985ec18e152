"""Transactional ids as reported by their coordinators, producers as reported by partition leaders, and operations for
administrators to end transactions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from odradek.client.administration.requests import AdminRequests
from odradek.client.common.errors import STALE_METADATA, ClientError, RetriableError, check, code_of, refusal
from odradek.client.common.values import TopicPartition, blocks, grouped
from odradek.client.consuming.offset_lookup import leaders_of
from odradek.client.network.cluster import CoordinatorType
from odradek.client.producing.producer_batch import ProducerIdentity
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.describe_producers_request import DescribeProducersRequest, TopicRequest
from odradek.protocol.messages.describe_producers_response import DescribeProducersResponse
from odradek.protocol.messages.describe_transactions_request import DescribeTransactionsRequest
from odradek.protocol.messages.describe_transactions_response import DescribeTransactionsResponse, TransactionState
from odradek.protocol.messages.init_producer_id_request import InitProducerIdRequest
from odradek.protocol.messages.init_producer_id_response import InitProducerIdResponse
from odradek.protocol.messages.list_transactions_request import ListTransactionsRequest
from odradek.protocol.messages.list_transactions_response import ListTransactionsResponse
from odradek.protocol.messages.write_txn_markers_request import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from odradek.protocol.messages.write_txn_markers_response import WriteTxnMarkersResponse

# First versions of ListTransactions that filter by duration and by pattern, respectively.
FIRST_VERSION_WITH_DURATION, FIRST_VERSION_WITH_PATTERN = 1, 2
NO_TIMEOUTS = frozenset({-1, 2**31 - 1})  # timeouts of a two-phase commit: -1 in KIP-939, the maximum in Kafka
FIRST_COORDINATOR_EPOCH = 0
# Last version of WriteTxnMarkers without a transaction version. If the request has a transaction version, the broker
# may require a marker whose epoch is above the producer's current epoch.
WITHOUT_TRANSACTION_VERSION = 1


@dataclass(frozen=True, slots=True)
class TransactionListing:
    """A transactional id. `state` is spelt as in the broker's response, for example Ongoing or PrepareCommit."""

    transactional_id: str
    producer_id: int
    state: str
    coordinator: int


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """A transactional id with its current transaction.

    timeout_ms   transaction timeout; None for a two-phase commit (KIP-939), which only its owner ends
    started_ms   ms since 1970; None unless a transaction is open or being ended
    partitions   the partitions that belong to the transaction or are still waiting for its marker, in sorted order
    """

    transactional_id: str
    coordinator: int
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int | None
    started_ms: int | None
    partitions: tuple[TopicPartition, ...]

    @property
    def is_two_phase(self) -> bool:
        """True if an external coordinator decides the transaction (KIP-939). A two-phase commit has no timeout."""
        return self.timeout_ms is None

    def open_for_ms(self, now_ms: int) -> int | None:
        """Returns how many milliseconds the transaction has been open at `now_ms`, or None if no transaction is
        open."""
        return None if self.started_ms is None or not self.partitions else max(0, now_ms - self.started_ms)


async def list_transactions(
    requests: AdminRequests,
    *,
    states: Iterable[str] = (),
    producer_ids: Iterable[int] = (),
    longer_than_ms: int | None = None,
    transactional_id_pattern: str | None = None,
) -> list[TransactionListing]:
    """Lists the transactional ids from all brokers, sorted by id. See `Admin.list_transactions`."""
    request = ListTransactionsRequest(
        state_filters=list(states),
        producer_id_filters=list(producer_ids),
        duration_filter=-1 if longer_than_ms is None else longer_than_ms,
        transactional_id_pattern=transactional_id_pattern,
    )
    since = FIRST_VERSION_WITH_DURATION if longer_than_ms is not None else 0
    since = FIRST_VERSION_WITH_PATTERN if transactional_id_pattern is not None else since
    found = [
        each
        for node_id in await requests.node_ids()
        for each in await _list_at_broker(requests, node_id, request, since)
    ]
    return sorted(found, key=lambda listing: listing.transactional_id)


async def _list_at_broker(
    requests: AdminRequests, node_id: int, request: ListTransactionsRequest, min_version: int
) -> list[TransactionListing]:
    async def ask() -> ListTransactionsResponse:
        answer = await requests.cluster.ask(request, ListTransactionsResponse, node_id=node_id, min_version=min_version)
        check(answer.error_code, f"the transactions of broker {node_id}")
        return answer

    answer = await requests.retry(ask)
    if answer.unknown_state_filters:
        unknown = ", ".join(answer.unknown_state_filters)
        raise ClientError(
            f"broker {node_id} does not know these transaction states: {unknown}", ErrorCode.INVALID_REQUEST
        )
    return [
        TransactionListing(state.transactional_id, state.producer_id, state.transaction_state, node_id)
        for state in answer.transaction_states
    ]


async def describe_transaction(requests: AdminRequests, transactional_id: str) -> TransactionDescription:
    """Describes one transactional id. Raises ClientError (TRANSACTIONAL_ID_NOT_FOUND)."""

    async def ask() -> TransactionDescription:
        node_id = await requests.cluster.coordinator(transactional_id, CoordinatorType.TRANSACTION)
        (state,) = await _describe_at_coordinator(requests, node_id, [transactional_id])
        requests.check_coordinator(CoordinatorType.TRANSACTION, transactional_id, state.error_code)
        return _description(state, node_id)

    return await requests.retry(ask)


async def describe_listed(
    requests: AdminRequests, listed: Iterable[TransactionListing]
) -> list[TransactionDescription]:
    """Describes the listed transactional ids. Leaves out ids that no longer exist at their coordinators. Raises
    ClientError."""
    return [
        _description(state, node_id)
        for node_id, transactional_ids in grouped((each.coordinator, each.transactional_id) for each in listed).items()
        for state in await _describe_at_coordinator(requests, node_id, transactional_ids)
        if state.error_code == ErrorCode.NONE.value
    ]


async def _describe_at_coordinator(
    requests: AdminRequests, node_id: int, transactional_ids: list[str]
) -> list[TransactionState]:
    request = DescribeTransactionsRequest(transactional_ids=transactional_ids)
    answer = await requests.cluster.ask(request, DescribeTransactionsResponse, node_id=node_id)
    return answer.transaction_states


def _description(state: TransactionState, node_id: int) -> TransactionDescription:
    return TransactionDescription(
        state.transactional_id,
        node_id,
        state.transaction_state,
        state.producer_id,
        state.producer_epoch,
        None if state.transaction_timeout_ms in NO_TIMEOUTS else state.transaction_timeout_ms,
        state.transaction_start_time_ms if state.transaction_start_time_ms >= 0 else None,
        tuple(sorted(TopicPartition(each.topic, index) for each in state.topics for index in each.partitions)),
    )


@dataclass(frozen=True, slots=True)
class ActiveProducer:
    """A producer as reported by a partition's leader.

    last_sequence             sequence of its last batch in the partition; -1 for a transaction marker
    last_timestamp_ms         time of its last batch in the partition, in ms since 1970
    coordinator_epoch         epoch in its last transaction marker in the partition; None before the first marker
    transaction_start_offset  first offset of its open transaction in the partition; None if it has no open transaction
    """

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int | None
    transaction_start_offset: int | None


async def describe_producers(
    requests: AdminRequests, partitions: Iterable[TopicPartition], *, broker_id: int | None = None
) -> dict[TopicPartition, list[ActiveProducer]]:
    """Returns the producers of each partition as reported by its leader, or by `broker_id`. See
    `Admin.describe_producers`."""
    left = dict.fromkeys(TopicPartition(*each) for each in partitions)
    found: dict[TopicPartition, list[ActiveProducer]] = {}

    async def ask() -> None:
        for node_id, led in (await _partitions_by_node(requests, left, broker_id)).items():
            for some in blocks(led):
                await _describe_producers_at_node(requests, node_id, some, found)
                for partition in some:
                    left.pop(partition, None)

    await requests.retry(ask)
    return found


async def _partitions_by_node(
    requests: AdminRequests, partitions: Iterable[TopicPartition], broker_id: int | None
) -> dict[int, list[TopicPartition]]:
    """Groups the partitions by the node that receives the request. Raises ClientError (UNKNOWN_TOPIC_OR_PARTITION), or
    RetriableError if a partition currently has no leader."""
    partitions = list(partitions)
    if broker_id is not None:
        return {broker_id: partitions}
    leaders = await leaders_of(requests.cluster, partitions)
    led = {node_id: [partition for partition, _ in some] for node_id, some in leaders.items()}
    if missing := set(partitions).difference(*led.values()):
        await requests.cluster.refresh({partition.topic for partition in missing})
        topic, index = min(missing)
        metadata = requests.cluster.known_topic(topic)
        if metadata is None or index >= len(metadata.leaders):
            text = f"the topic {topic!r} is unknown" if metadata is None else f"{topic} has no partition {index}"
            raise ClientError(text, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        raise RetriableError(f"{topic}-{index} has no leader at the moment", ErrorCode.LEADER_NOT_AVAILABLE)
    return led


async def _describe_producers_at_node(
    requests: AdminRequests,
    node_id: int,
    partitions: list[TopicPartition],
    found: dict[TopicPartition, list[ActiveProducer]],
) -> None:
    topics = [TopicRequest(name=name, partition_indexes=indexes) for name, indexes in grouped(partitions).items()]
    request = DescribeProducersRequest(topics=topics)
    answer = await requests.cluster.ask(request, DescribeProducersResponse, node_id=node_id)
    for topic in answer.topics:
        for each in topic.partitions:
            partition = TopicPartition(topic.name, each.partition_index)
            await _check_leader(requests, partition, "the producers", each.error_code, each.error_message)
            found[partition] = [
                ActiveProducer(
                    producer.producer_id,
                    producer.producer_epoch,
                    producer.last_sequence,
                    producer.last_timestamp,
                    producer.coordinator_epoch if producer.coordinator_epoch >= 0 else None,
                    producer.current_txn_start_offset if producer.current_txn_start_offset >= 0 else None,
                )
                for producer in each.active_producers
            ]


async def _check_leader(
    requests: AdminRequests, partition: TopicPartition, what: str, error_code: int, message: str | None = None
) -> None:
    """Raises the error in a partition leader's response, if any. If the leader has moved, first refreshes the
    metadata."""
    if error_code == ErrorCode.NONE.value:
        return
    code = code_of(error_code)
    if code in STALE_METADATA:
        await requests.cluster.refresh({partition.topic})
    raise refusal(code, f"{what} of {partition.topic}-{partition.partition}", message)


async def abort_transaction(
    requests: AdminRequests,
    partition: TopicPartition,
    *,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int | None = None,
) -> None:
    """Writes an abort marker into one partition. See `Admin.abort_transaction`."""
    partition = TopicPartition(*partition)
    marker = WritableTxnMarker(
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transaction_result=False,
        topics=[WritableTxnMarkerTopic(name=partition.topic, partition_indexes=[partition.partition])],
        coordinator_epoch=FIRST_COORDINATOR_EPOCH if coordinator_epoch is None else coordinator_epoch,
    )
    request = WriteTxnMarkersRequest(markers=[marker])

    async def ask() -> None:
        (node_id,) = await _partitions_by_node(requests, [partition], None)
        answer = await requests.cluster.ask(
            request, WriteTxnMarkersResponse, node_id=node_id, max_version=WITHOUT_TRANSACTION_VERSION
        )
        for of_producer in answer.markers:
            for of_topic in of_producer.topics:
                for each in of_topic.partitions:
                    await _check_leader(requests, partition, "the marker", each.error_code)

    await requests.retry(ask)


async def fence_producer(
    requests: AdminRequests, transactional_id: str, timeout_ms: int | None = None
) -> ProducerIdentity:
    """Initialises the transactional id as a new producer would, which aborts the open transaction and fences the
    current producer. Returns when the abort is complete.

    timeout_ms   transaction timeout of the id until its next producer sets a different timeout
    """
    kind = CoordinatorType.TRANSACTION
    request = InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=requests.request_timeout_ms if timeout_ms is None else timeout_ms,
    )

    async def fence() -> ProducerIdentity:  # the broker answers CONCURRENT_TRANSACTIONS until the abort is complete
        answer = await requests.cluster.ask_coordinator(transactional_id, kind, request, InitProducerIdResponse)
        requests.check_coordinator(kind, transactional_id, answer.error_code)
        return ProducerIdentity(answer.producer_id, answer.producer_epoch)

    return await requests.retry(fence)


async def ids_by_producer(requests: AdminRequests, producer_ids: Iterable[int]) -> dict[int, str]:
    """Returns the transactional id of each producer id. Leaves out producer ids that are unknown to all
    coordinators."""
    requested_ids = sorted(set(producer_ids))
    if not requested_ids:
        return {}
    found = await list_transactions(requests, producer_ids=requested_ids)
    return {each.producer_id: each.transactional_id for each in found}
