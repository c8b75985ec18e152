"""Handlers for requests about transactions from administrators and other brokers: DescribeTransactions,
ListTransactions and WriteTxnMarkers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from odradek.broker.api.authorized_operations import is_allowed
from odradek.broker.api.context import Audit, RequestContext, authorization_error
from odradek.broker.api.long_requests import AnswerEntries
from odradek.broker.coordinators.transaction_markers import MarkerResults, TxnMarker
from odradek.broker.runtime.slices import Steps, sliced, step_in_slices, visit_in_slices
from odradek.broker.runtime.waiting import Deferred, NowOrLater
from odradek.broker.transactions.requests import TransactionFilter, list_entry, states_of
from odradek.protocol.acls import CLUSTER_NAME, Operation, ResourceType
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.describe_transactions_response import DescribeTransactionsResponse, TransactionState
from odradek.protocol.messages.list_transactions_response import ListTransactionsResponse
from odradek.protocol.messages.list_transactions_response import TransactionState as ListedTransaction
from odradek.protocol.messages.write_txn_markers_response import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersResponse,
)
from odradek.protocol.topic_partition import PartitionCodes

if TYPE_CHECKING:
    from odradek.broker.coordinators.shard import Shard
    from odradek.broker.handlers.handler_broker import HandlerBroker
    from odradek.broker.patterns.re2 import Pattern
    from odradek.broker.transactions.core import TransactionCore
    from odradek.broker.transactions.entry import Txn
    from odradek.protocol.messages.describe_transactions_request import DescribeTransactionsRequest
    from odradek.protocol.messages.list_transactions_request import ListTransactionsRequest
    from odradek.protocol.messages.write_txn_markers_request import WritableTxnMarker, WriteTxnMarkersRequest

MAX_WORK: Final = 30_000_000  # maximum number of work units for a pattern in one request; about ten seconds of CPU time
FIRST_VERSION_WITH_TRANSACTION_VERSION: Final = 2  # first version of WriteTxnMarkers with the transaction version


@sliced
def describe_transactions(
    request: DescribeTransactionsRequest, context: RequestContext, broker: HandlerBroker
) -> Steps[DescribeTransactionsResponse]:
    """Handles DescribeTransactions (key 65), version 0, which returns the state of transactional ids that this broker
    coordinates.

    Needs DESCRIBE on each transactional id. Topics that the client may not DESCRIBE are omitted without an error.
    """
    response, entries = DescribeTransactionsResponse(), AnswerEntries()
    for transactional_id in request.transactional_ids:
        state = describe(transactional_id, context, broker)
        response.transaction_states.append(state)
        size = 1 + sum(len(topic.partitions) for topic in state.topics)
        entries.add(size)
        for _ in range(size):
            yield
    return response


def describe(transactional_id: str, context: RequestContext, broker: HandlerBroker) -> TransactionState:
    try:
        context.require(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, transactional_id)
        found = broker.transactions.describe(transactional_id)
    except KafkaError as error:
        return TransactionState(transactional_id=transactional_id, error_code=error.code.value)
    found.topics = [
        each for each in found.topics if is_allowed(context, Operation.DESCRIBE, ResourceType.TOPIC, each.topic)
    ]
    return found


async def list_transactions(
    request: ListTransactionsRequest, context: RequestContext, broker: HandlerBroker
) -> ListTransactionsResponse:
    """Handles ListTransactions (key 66), versions 0-2, which returns the transactional ids that this broker
    coordinates, with their states.

    v1 adds a filter by transaction duration. v2 adds a filter by transactional id pattern. The response contains the
    ids that the client may DESCRIBE. The handler works in slices, so that other clients are served while many ids are
    examined. The response shows each transaction's state at the time its partition of `__transaction_state` was read.
    The request fails with COORDINATOR_LOAD_IN_PROGRESS while any partition of `__transaction_state` is not loaded.
    """
    states, unknown = states_of(request.state_filters)
    selection = TransactionFilter(
        states,
        frozenset(request.producer_id_filters),
        None if request.duration_filter < 0 else request.duration_filter,
    )
    pattern = pattern_of(request.transactional_id_pattern)
    now_ms = broker.clock.now_ms()
    txns: list[Txn] = []
    found: list[ListedTransaction] = []

    def collect(shard: Shard[TransactionCore]) -> None:
        txns.extend(shard.read_state(lambda core: core.candidates(selection)))

    def show() -> Iterator[None]:
        for txn in txns:
            transactional_id = txn.transactional_id
            if (
                selection.selects(txn, now_ms)
                and (pattern is None or (yield from pattern.steps(transactional_id)))
                and is_allowed(context, Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, transactional_id)
            ):
                found.append(list_entry(txn))
            if pattern is not None and pattern.work > MAX_WORK:
                what = f"The pattern needs more than {MAX_WORK:,} steps to be matched against the transactional ids."
                raise KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION, what)
            yield

    await visit_in_slices(broker.transactions.shards, collect, broker.watch, "ListTransactions")
    await step_in_slices(show(), broker.watch, "ListTransactions")
    return ListTransactionsResponse(unknown_state_filters=unknown, transaction_states=found)


def pattern_of(pattern: str | None) -> Pattern | None:
    """Compiles the request's pattern. Returns None if the request has no pattern. Raises KafkaError if the pattern is
    invalid."""
    if not pattern:
        return None
    from odradek.broker.patterns.re2 import InvalidPattern, Pattern  # imported here because few clients send a pattern

    try:
        return Pattern(pattern)
    except InvalidPattern as error:
        raise KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION, str(error)) from None


def write_txn_markers(
    request: WriteTxnMarkersRequest, context: RequestContext, broker: HandlerBroker
) -> NowOrLater[WriteTxnMarkersResponse]:
    """Handles WriteTxnMarkers (key 27), versions 1-2, which ends transactions in partitions that this broker leads.

    v1 is flexible. v2 (KIP-1228) adds the transaction version. Under transaction version 2, a marker's epoch must be
    higher than the open transaction's epoch. Needs ALTER or CLUSTER_ACTION on the cluster, because the request is sent
    by coordinators, and by operators who end a transaction that has no coordinator. The response is sent once all
    markers are durable. Markers with the same producer id share one entry in the response.
    """
    if not is_allowed(context, Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME, Audit.PROBE) and not is_allowed(
        context, Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME
    ):
        raise authorization_error(ResourceType.CLUSTER, context.api_key)
    reply: Deferred[WriteTxnMarkersResponse] = Deferred()
    markers = [marker_of(each, context.api_version) for each in request.markers]
    broker.markers.write(markers, MarkerResults(markers, lambda results: reply.resolve(response_to(markers, results))))
    return reply


def marker_of(requested: WritableTxnMarker, version: int) -> TxnMarker:
    """Converts a marker from a request of the given version."""
    return TxnMarker(
        requested.producer_id,
        requested.producer_epoch,
        requested.transaction_result,
        requested.coordinator_epoch,
        requested.transaction_version if version >= FIRST_VERSION_WITH_TRANSACTION_VERSION else None,
        [(topic.name, index) for topic in requested.topics for index in topic.partition_indexes],
    )


def response_to(markers: Sequence[TxnMarker], results: Sequence[PartitionCodes]) -> WriteTxnMarkersResponse:
    by_producer: dict[int, dict[str, dict[int, ErrorCode]]] = {}
    for marker, codes in zip(markers, results, strict=True):
        topics = by_producer.setdefault(marker.producer_id, {})
        for (topic, index), code in codes.items():
            topics.setdefault(topic, {})[index] = code
    return WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(
                producer_id=producer_id,
                topics=[
                    WritableTxnMarkerTopicResult(
                        name=topic,
                        partitions=[
                            WritableTxnMarkerPartitionResult(partition_index=index, error_code=code.value)
                            for index, code in codes.items()
                        ],
                    )
                    for topic, codes in topics.items()
                ],
            )
            for producer_id, topics in by_producer.items()
        ]
    )
