"""Transactional ids as their coordinators know them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from odradek.client.administration.asking import Asking
from odradek.client.common.errors import ClientError, check
from odradek.client.common.values import TopicPartition, grouped
from odradek.client.network.cluster import CoordinatorType
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.describe_transactions_request import DescribeTransactionsRequest
from odradek.protocol.messages.describe_transactions_response import DescribeTransactionsResponse, TransactionState
from odradek.protocol.messages.list_transactions_request import ListTransactionsRequest
from odradek.protocol.messages.list_transactions_response import ListTransactionsResponse

DURATION_SINCE, PATTERN_SINCE = 1, 2  # versions of ListTransactions
NO_TIMEOUTS = frozenset({-1, 2**31 - 1})  # as KIP-939 says it, and as Kafka stores it


@dataclass(frozen=True, slots=True)
class TransactionListing:
    """`state` as brokers spell it: Empty, Ongoing, PrepareCommit, CompleteAbort …"""

    transactional_id: str
    producer_id: int
    state: str
    coordinator: int


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """`started_ms`: since 1970, None where no transaction is open or being ended. `partitions`, in order, take part in
    it, or await their marker.

    `timeout_ms` is None for a two-phase commit (KIP-939), which only its owner ends.
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
        return self.timeout_ms is None

    def open_for_ms(self, now_ms: int) -> int | None:
        return None if self.started_ms is None or not self.partitions else max(0, now_ms - self.started_ms)


async def list_transactions(
    asking: Asking,
    *,
    states: Iterable[str] = (),
    producer_ids: Iterable[int] = (),
    longer_than_ms: int | None = None,
    transactional_id_pattern: str | None = None,
) -> list[TransactionListing]:
    """Asks all brokers; sorted by id: see `Admin.list_transactions`."""
    request = ListTransactionsRequest(
        state_filters=list(states),
        producer_id_filters=list(producer_ids),
        duration_filter=-1 if longer_than_ms is None else longer_than_ms,
        transactional_id_pattern=transactional_id_pattern,
    )
    since = DURATION_SINCE if longer_than_ms is not None else 0
    since = PATTERN_SINCE if transactional_id_pattern is not None else since
    found = [each for node_id in await asking.node_ids() for each in await _list_of(asking, node_id, request, since)]
    return sorted(found, key=lambda listing: listing.transactional_id)


async def _list_of(
    asking: Asking, node_id: int, request: ListTransactionsRequest, min_version: int
) -> list[TransactionListing]:
    async def ask() -> ListTransactionsResponse:
        answer = await asking.cluster.ask(request, ListTransactionsResponse, node_id=node_id, min_version=min_version)
        check(answer.error_code, f"the transactions of broker {node_id}")
        return answer

    answer = await asking.patiently(ask)
    if answer.unknown_state_filters:
        unknown = ", ".join(answer.unknown_state_filters)
        raise ClientError(f"states that broker {node_id} does not know: {unknown}", ErrorCode.INVALID_REQUEST)
    return [
        TransactionListing(told.transactional_id, told.producer_id, told.transaction_state, node_id)
        for told in answer.transaction_states
    ]


async def describe_transaction(asking: Asking, transactional_id: str) -> TransactionDescription:
    """Raises ClientError (TRANSACTIONAL_ID_NOT_FOUND)."""

    async def ask() -> TransactionDescription:
        node_id = await asking.cluster.coordinator(transactional_id, CoordinatorType.TRANSACTION)
        (told,) = await _describe_at(asking, node_id, [transactional_id])
        asking.check_coordinator(CoordinatorType.TRANSACTION, transactional_id, told.error_code)
        return _description(told, node_id)

    return await asking.patiently(ask)


async def describe_listed(asking: Asking, listed: Iterable[TransactionListing]) -> list[TransactionDescription]:
    """Leaves out those that their coordinators do not know any more. Raises ClientError."""
    return [
        _description(told, node_id)
        for node_id, transactional_ids in grouped((each.coordinator, each.transactional_id) for each in listed).items()
        for told in await _describe_at(asking, node_id, transactional_ids)
        if told.error_code == ErrorCode.NONE.value
    ]


async def _describe_at(asking: Asking, node_id: int, transactional_ids: list[str]) -> list[TransactionState]:
    request = DescribeTransactionsRequest(transactional_ids=transactional_ids)
    answer = await asking.cluster.ask(request, DescribeTransactionsResponse, node_id=node_id)
    return answer.transaction_states


def _description(told: TransactionState, node_id: int) -> TransactionDescription:
    return TransactionDescription(
        told.transactional_id,
        node_id,
        told.transaction_state,
        told.producer_id,
        told.producer_epoch,
        None if told.transaction_timeout_ms in NO_TIMEOUTS else told.transaction_timeout_ms,
        told.transaction_start_time_ms if told.transaction_start_time_ms >= 0 else None,
        tuple(sorted(TopicPartition(each.topic, index) for each in told.topics for index in each.partitions)),
    )


async def ids_by_producer(asking: Asking, producer_ids: Iterable[int]) -> dict[int, str]:
    """Which transactional id a producer id belongs to; those that no coordinator knows are missing."""
    wanted = sorted(set(producer_ids))
    if not wanted:
        return {}
    found = await list_transactions(asking, producer_ids=wanted)
    return {each.producer_id: each.transactional_id for each in found}
