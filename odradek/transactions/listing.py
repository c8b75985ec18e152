"""What the coordinators know of transactions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from odradek.admin.cluster import Cluster
from odradek.admin.connection import AdminError, Connection, check
from protocol.errors import ErrorCode
from protocol.messages.describe_transactions_request import DescribeTransactionsRequest
from protocol.messages.describe_transactions_response import DescribeTransactionsResponse, TransactionState
from protocol.messages.list_transactions_request import ListTransactionsRequest
from protocol.messages.list_transactions_response import ListTransactionsResponse

DURATION_SINCE, PATTERN_SINCE = 1, 2  # versions of ListTransactions
ONGOING = "Ongoing"
NO_TIMEOUT = frozenset({-1, 2**31 - 1})  # as KIP-939 says it, and as Kafka stores it


@dataclass(frozen=True, slots=True)
class Listed:
    transactional_id: str
    coordinator: int
    producer_id: int
    state: str


@dataclass(frozen=True, slots=True)
class Described:
    """started_ms: None where no transaction is open or being ended; `partitions` take part, or await their marker."""

    transactional_id: str
    coordinator: int
    producer_id: int
    producer_epoch: int
    state: str
    timeout_ms: int
    started_ms: int | None
    partitions: tuple[tuple[str, int], ...]

    @property
    def is_two_phase(self) -> bool:
        """Of a two-phase commit (KIP-939): it has no timeout, so that nobody but its owner ends it."""
        return self.timeout_ms in NO_TIMEOUT

    def open_for_ms(self, now_ms: int) -> int | None:
        return None if self.started_ms is None or not self.partitions else max(0, now_ms - self.started_ms)


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which transactional ids; empty and None are no restriction. longer_than_ms: see `list_transactions`."""

    states: Sequence[str] = ()
    producer_ids: Sequence[int] = ()
    longer_than_ms: int | None = None
    pattern: str | None = None


def list_transactions(cluster: Cluster, wanted: Wanted) -> list[Listed]:
    """Of all brokers. Raises AdminError.

    longer_than_ms counts from the start of the last transaction. Ids that never had one pass it, in Kafka as here: ask
    for the state Ongoing with it.
    """
    return sorted(
        (found for node_id in cluster.node_ids for found in _list_of(cluster, node_id, wanted)),
        key=lambda each: each.transactional_id,
    )


def _list_of(cluster: Cluster, node_id: int, wanted: Wanted) -> list[Listed]:
    broker = cluster.broker(node_id)
    _refuse_what_is_too_new(broker, wanted)
    request = ListTransactionsRequest(
        state_filters=list(wanted.states),
        producer_id_filters=list(wanted.producer_ids),
        duration_filter=-1 if wanted.longer_than_ms is None else wanted.longer_than_ms,
        transactional_id_pattern=wanted.pattern,
    )

    def ask() -> ListTransactionsResponse:
        answer = broker.ask(request, ListTransactionsResponse)
        check(answer.error_code, f"the transactions of broker {node_id}")
        return answer

    answer = cluster.patiently(ask)
    if answer.unknown_state_filters:
        raise AdminError(f"broker {node_id} knows no state {', '.join(answer.unknown_state_filters)}")
    return [
        Listed(each.transactional_id, node_id, each.producer_id, each.transaction_state)
        for each in answer.transaction_states
    ]


def _refuse_what_is_too_new(broker: Connection, wanted: Wanted) -> None:
    version = broker.version_for(ListTransactionsRequest)
    if wanted.longer_than_ms is not None and version < DURATION_SINCE:
        raise AdminError("this broker cannot select transactions by their age")
    if wanted.pattern and version < PATTERN_SINCE:
        raise AdminError("this broker cannot select transactional ids by a pattern")


def describe(cluster: Cluster, transactional_id: str) -> Described:
    """Raises AdminError, so also where nothing is known of it."""
    node_id = cluster.coordinator(transactional_id)

    def ask() -> Described:
        (found,) = _describe_at(cluster, node_id, [transactional_id])
        check(found.error_code, f"the transactional id {transactional_id!r}")
        return _described(found, node_id)

    return cluster.patiently(ask)


def describe_listed(cluster: Cluster, listed: Iterable[Listed]) -> list[Described]:
    """Those that their coordinators still know. Raises AdminError."""
    by_coordinator: dict[int, list[str]] = {}
    for each in listed:
        by_coordinator.setdefault(each.coordinator, []).append(each.transactional_id)
    return [
        _described(found, node_id)
        for node_id, transactional_ids in by_coordinator.items()
        for found in _describe_at(cluster, node_id, transactional_ids)
        if found.error_code == ErrorCode.NONE.value
    ]


def _describe_at(cluster: Cluster, node_id: int, transactional_ids: list[str]) -> list[TransactionState]:
    request = DescribeTransactionsRequest(transactional_ids=transactional_ids)
    return cluster.broker(node_id).ask(request, DescribeTransactionsResponse).transaction_states


def _described(found: TransactionState, node_id: int) -> Described:
    return Described(
        found.transactional_id,
        node_id,
        found.producer_id,
        found.producer_epoch,
        found.transaction_state,
        found.transaction_timeout_ms,
        found.transaction_start_time_ms if found.transaction_start_time_ms >= 0 else None,
        tuple(sorted((topic.topic, partition) for topic in found.topics for partition in topic.partitions)),
    )


def ids_by_producer(cluster: Cluster, producer_ids: Iterable[int]) -> dict[int, str]:
    """Which transactional id a producer id belongs to; those that no coordinator knows are missing."""
    wanted = sorted(set(producer_ids))
    if not wanted:
        return {}
    return {each.producer_id: each.transactional_id for each in list_transactions(cluster, Wanted(producer_ids=wanted))}
