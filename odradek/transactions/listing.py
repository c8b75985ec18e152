"""What the coordinators know of transactions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from odradek.client.administration.asking import Asking
from odradek.client.errors import STALE_COORDINATOR, ClientError, check, code_of
from odradek.client.network.cluster import CoordinatorType
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.describe_transactions_request import DescribeTransactionsRequest
from odradek.protocol.messages.describe_transactions_response import DescribeTransactionsResponse, TransactionState
from odradek.protocol.messages.list_transactions_request import ListTransactionsRequest
from odradek.protocol.messages.list_transactions_response import ListTransactionsResponse

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


async def list_transactions(asking: Asking, wanted: Wanted) -> list[Listed]:
    """Of all brokers. Raises ClientError.

    longer_than_ms counts from the start of the last transaction. Ids that never had one pass it, in Kafka as here: ask
    for the state Ongoing with it.
    """
    return sorted(
        [found for node_id in await asking.node_ids() for found in await _list_of(asking, node_id, wanted)],
        key=lambda each: each.transactional_id,
    )


async def _list_of(asking: Asking, node_id: int, wanted: Wanted) -> list[Listed]:
    request = ListTransactionsRequest(
        state_filters=list(wanted.states),
        producer_id_filters=list(wanted.producer_ids),
        duration_filter=-1 if wanted.longer_than_ms is None else wanted.longer_than_ms,
        transactional_id_pattern=wanted.pattern,
    )
    since = PATTERN_SINCE if wanted.pattern else DURATION_SINCE if wanted.longer_than_ms is not None else 0

    async def ask() -> ListTransactionsResponse:
        answer = await asking.cluster.ask(request, ListTransactionsResponse, node_id=node_id, min_version=since)
        check(answer.error_code, f"the transactions of broker {node_id}")
        return answer

    answer = await asking.patiently(ask)
    if answer.unknown_state_filters:
        raise ClientError(f"broker {node_id} knows no state {', '.join(answer.unknown_state_filters)}")
    return [
        Listed(each.transactional_id, node_id, each.producer_id, each.transaction_state)
        for each in answer.transaction_states
    ]


async def describe(asking: Asking, transactional_id: str) -> Described:
    """Raises ClientError, so also where nothing is known of it."""

    async def ask() -> Described:
        node_id = await asking.cluster.coordinator(transactional_id, CoordinatorType.TRANSACTION)
        (found,) = await _describe_at(asking, node_id, [transactional_id])
        if code_of(found.error_code) in STALE_COORDINATOR:
            asking.cluster.forget_coordinator(transactional_id, CoordinatorType.TRANSACTION)
        check(found.error_code, f"the transactional id {transactional_id!r}")
        return _described(found, node_id)

    return await asking.patiently(ask)


async def describe_listed(asking: Asking, listed: Iterable[Listed]) -> list[Described]:
    """Those that their coordinators still know. Raises ClientError."""
    by_coordinator: dict[int, list[str]] = {}
    for each in listed:
        by_coordinator.setdefault(each.coordinator, []).append(each.transactional_id)
    return [
        _described(found, node_id)
        for node_id, transactional_ids in by_coordinator.items()
        for found in await _describe_at(asking, node_id, transactional_ids)
        if found.error_code == ErrorCode.NONE.value
    ]


async def _describe_at(asking: Asking, node_id: int, transactional_ids: list[str]) -> list[TransactionState]:
    request = DescribeTransactionsRequest(transactional_ids=transactional_ids)
    answer = await asking.cluster.ask(request, DescribeTransactionsResponse, node_id=node_id)
    return answer.transaction_states


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


async def ids_by_producer(asking: Asking, producer_ids: Iterable[int]) -> dict[int, str]:
    """Which transactional id a producer id belongs to; those that no coordinator knows are missing."""
    wanted = sorted(set(producer_ids))
    if not wanted:
        return {}
    found = await list_transactions(asking, Wanted(producer_ids=wanted))
    return {each.producer_id: each.transactional_id for each in found}
