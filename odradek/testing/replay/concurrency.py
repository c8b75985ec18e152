"""Finds responses that depend on the order of concurrent requests, because one request reads state that another request
changes."""

from __future__ import annotations

from typing import Final

from odradek.protocol.api_keys import ApiKey as Api

LOG, GROUPS, OFFSETS, TOPICS, TRANSACTIONS, SHARES = "log", "groups", "offsets", "topics", "transactions", "shares"
# For each API, the state that its response depends on and the state that its request changes. Responses of other APIs
# do not depend on concurrent requests.
READS_AND_WRITES: Final[dict[Api, tuple[frozenset[str], frozenset[str]]]] = {
    api: (frozenset(reads), frozenset(writes))
    for apis, reads, writes in (
        ((Api.PRODUCE,), {LOG, TRANSACTIONS}, {LOG}),
        ((Api.FETCH, Api.LIST_OFFSETS), {LOG, TOPICS}, set[str]()),
        ((Api.DELETE_RECORDS,), {LOG}, {LOG}),
        ((Api.END_TXN, Api.WRITE_TXN_MARKERS), {TRANSACTIONS, LOG}, {TRANSACTIONS, LOG, OFFSETS}),
        ((Api.INIT_PRODUCER_ID, Api.ADD_PARTITIONS_TO_TXN, Api.ADD_OFFSETS_TO_TXN), {TRANSACTIONS}, {TRANSACTIONS}),
        ((Api.TXN_OFFSET_COMMIT,), {TRANSACTIONS, GROUPS}, {OFFSETS}),
        ((Api.DESCRIBE_TRANSACTIONS, Api.LIST_TRANSACTIONS, Api.DESCRIBE_PRODUCERS), {TRANSACTIONS, LOG}, set[str]()),
        ((Api.JOIN_GROUP, Api.SYNC_GROUP, Api.LEAVE_GROUP), {GROUPS}, {GROUPS}),
        ((Api.CONSUMER_GROUP_HEARTBEAT, Api.SHARE_GROUP_HEARTBEAT), {GROUPS, TOPICS}, {GROUPS}),
        ((Api.STREAMS_GROUP_HEARTBEAT,), {GROUPS, TOPICS}, {GROUPS, TOPICS}),
        ((Api.STREAMS_GROUP_DESCRIBE,), {GROUPS}, set[str]()),
        ((Api.HEARTBEAT, Api.DESCRIBE_GROUPS, Api.LIST_GROUPS), {GROUPS}, set[str]()),
        ((Api.OFFSET_COMMIT,), {GROUPS, OFFSETS}, {OFFSETS}),
        ((Api.OFFSET_FETCH,), {GROUPS, OFFSETS}, set[str]()),
        ((Api.METADATA, Api.DESCRIBE_TOPIC_PARTITIONS, Api.DESCRIBE_CONFIGS), {TOPICS}, set[str]()),
        ((Api.CREATE_TOPICS, Api.DELETE_TOPICS, Api.CREATE_PARTITIONS), {TOPICS}, {TOPICS}),
        ((Api.SHARE_FETCH, Api.SHARE_ACKNOWLEDGE), {SHARES, LOG, GROUPS}, {SHARES}),
    )
    for api in apis
}
NOTHING: Final[tuple[frozenset[str], frozenset[str]]] = (frozenset(), frozenset())


class RequestsInFlight:
    """A recording's exchanges that are in progress, keyed by number."""

    def __init__(self) -> None:
        self._apis: dict[int, Api] = {}
        self._raced: set[int] = set()

    def begin(self, exchange: int, api: Api) -> None:
        reads, writes = READS_AND_WRITES.get(api, NOTHING)
        for number, other in self._apis.items():
            others_reads, others_writes = READS_AND_WRITES.get(other, NOTHING)
            if reads & others_writes:
                self._raced.add(exchange)
            if writes & others_reads:
                self._raced.add(number)
        self._apis[exchange] = api

    def end(self, exchange: int) -> bool:
        """Ends an exchange. Returns whether a concurrent exchange may have changed its response."""
        self._apis.pop(exchange, None)
        is_raced = exchange in self._raced
        self._raced.discard(exchange)
        return is_raced
