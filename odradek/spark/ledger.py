"""The ledger, a compacted topic in which each sink records its last decision (docs/spec/spark.md#s2).

A record is written in an ordinary transaction with the transactional id `{sink}.ledger`. The last process to initialise
this id holds the lease. All earlier holders are fenced: they can neither write nor finish a write that they have
started.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from odradek.client import (
    ClientError,
    Consumer,
    PreparedTxnState,
    Producer,
    RetriableError,
    TopicPartition,
    TransactionDescription,
)
from odradek.client.administration.topics import NewTopic
from odradek.protocol.errors import ErrorCode
from odradek.protocol.key_partition import partition_for_key
from odradek.spark.brokers import Brokers
from odradek.spark.names import Sink, task_of
from odradek.spark.steps import CommitStep, Observe, observe_nothing

LEDGER_TOPIC = "__odradek_spark_ledger"
PARTITIONS = 8
CONFIGS = {"cleanup.policy": "compact", "segment.bytes": str(16 * 1024 * 1024)}
# Timeout of the ledger's transactions. If a lease holder crashes, its open transaction delays other sinks in the same
# partition for at most this long.
LEASE_TIMEOUT_MS = 10_000
POLL_MS = 50
CLOSE_MS = 1_000
UNDECIDED = -1  # the batch number before the first batch
ONGOING, EMPTY = "Ongoing", "Empty"  # the broker's names for the states of transactional ids


# Versions of `LedgerEntry.digest`. Version 1 covers topic, key and value. Version 2 covers all written columns.
DIGEST_OF_KEYS_AND_VALUES = 1
DIGEST_OF_ALL_COLUMNS = 2

_JSON_NAMES = {
    "at_ms": "at",
    "is_finished": "finished",
    "expires_ms": "expires",
    "digest_version": "digestVersion",
}


@dataclass(frozen=True, slots=True)
class PreparedPart:
    """One of a batch's transactions, prepared by a task."""

    transactional_id: str
    state: PreparedTxnState


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """A sink's last decision, namely that batch `batch` consists of the transactions in `parts`.

    doomed          ids of transactions that another process may be aborting
    is_finished     whether all parts have ended, so that they need not be looked up at the broker
    expires_ms      time at which a batch write's key can be used again; None for a stream
    digest_version  version of the digest algorithm. A record without this field was written before digests had
                    versions.
    """

    sink: str
    query: str
    run: str
    batch: int
    parts: tuple[PreparedPart, ...]
    doomed: tuple[str, ...]
    rows: int
    digest: int
    at_ms: int
    is_finished: bool = False
    expires_ms: int | None = None
    digest_version: int = DIGEST_OF_KEYS_AND_VALUES

    def is_expired(self, now_ms: int) -> bool:
        """Returns whether a batch write's key can be used again. An unfinished entry never expires, because its
        transactions still have to be ended."""
        return self.is_finished and self.expires_ms is not None and self.expires_ms <= now_ms

    def to_json(self) -> bytes:
        document: dict[str, Any] = {
            _JSON_NAMES.get(each.name, each.name): getattr(self, each.name) for each in fields(self)
        }
        document["parts"] = [
            [part.transactional_id, part.state.producer_id, part.state.producer_epoch] for part in self.parts
        ]
        return json.dumps(document, separators=(",", ":")).encode()

    @classmethod
    def from_json(cls, text: bytes) -> LedgerEntry:
        """Parses a ledger record. Raises ValueError for a text that `to_json` cannot have produced."""
        try:
            document = json.loads(text)
            document |= {
                "parts": tuple(
                    PreparedPart(name, PreparedTxnState(number, epoch)) for name, number, epoch in document["parts"]
                ),
                "doomed": tuple(document["doomed"]),
            }
            names = {name: _JSON_NAMES.get(name, name) for name in cls.__slots__}
            # Records written by earlier releases lack `finished`, `expires` or `digestVersion`.
            return cls(**{name: document[short] for name, short in names.items() if short in document})
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"this is not a record of the ledger: {text[:200]!r}") from error


def undecided_entry(sink: Sink) -> LedgerEntry:
    return LedgerEntry(sink.name, sink.query, "", UNDECIDED, (), (), 0, 0, 0)


class LeaseLost(Exception):
    """Another process holds the lease, or it is unknown whether the record was written. Take the lease again and read
    the ledger."""


class Ledger:
    """One sink's ledger. Only the sink's driver uses it."""

    def __init__(self, brokers: Brokers, sink: Sink, observe: Observe = observe_nothing) -> None:
        self._brokers = brokers
        self._sink = sink
        self._observe = observe
        self._producer: Producer | None = None
        self._entry = undecided_entry(sink)

    async def leased_entry(self) -> LedgerEntry:
        """Returns the sink's record. Takes the lease first if this process does not hold it."""
        return self._entry if self._producer is not None else await self.acquire_lease()

    async def acquire_lease(self) -> LedgerEntry:
        """Takes the lease, and then reads the sink's record. From then on, only the holder of a newer lease can change
        the record."""
        await self.release()
        async with self._brokers.admin() as admin:
            try:
                await admin.create_topics([NewTopic(LEDGER_TOPIC, partitions=PARTITIONS, configs=CONFIGS)])
            except ClientError as error:
                if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                    raise
        producer = Producer(
            bootstrap_servers=self._brokers.bootstrap_servers,
            transactional_id=self._sink.ledger_id,
            transaction_timeout_ms=LEASE_TIMEOUT_MS,
            max_block_ms=self._brokers.timeout_ms,
            bootstrap_timeout_ms=self._brokers.bootstrap_timeout_ms,
            linger_ms=0,
            **self._brokers.security,
        )
        await producer.start()
        try:
            await producer.init_transactions()
            await self._observe(CommitStep.LEASED, 0)
            entries = await read_entries(self._brokers, self._sink)
        except BaseException:
            await producer.close(timeout_ms=0)
            raise
        self._producer = producer
        self._entry = entries.get(self._sink.name, undecided_entry(self._sink))
        return self._entry

    async def write(self, entry: LedgerEntry) -> None:
        """Writes the record and returns once its transaction is committed. Raises LeaseLost."""
        await self._write(entry.to_json())
        self._entry = entry

    async def erase(self) -> None:
        """Erases the sink's record, so that the sink appears never to have decided anything. Raises LeaseLost."""
        await self._write(None)
        self._entry = undecided_entry(self._sink)

    async def _write(self, value: bytes | None) -> None:
        producer = self._producer
        if producer is None:
            raise LeaseLost("no lease is held")
        try:
            await producer.begin_transaction()
            sent = await producer.send(LEDGER_TOPIC, value, key=self._sink.name.encode())
            await producer.flush()
            await sent
            await self._observe(CommitStep.APPENDED, 0)
            await producer.commit_transaction()
        except ClientError as error:
            await self.release()
            raise LeaseLost(str(error)) from error

    async def release(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            await producer.close(timeout_ms=CLOSE_MS)


async def read_entries(brokers: Brokers, sink: Sink | None = None) -> dict[str, LedgerEntry]:
    """Returns the live record of this sink, or of all sinks, keyed by the sink's name.

    Reads up to the end of the log at the time of the call, not just up to the last stable offset, because another
    sink's open transaction must not hide a decision. Raises RetriableError if a transaction remains open for too long.
    """
    async with brokers.admin() as admin:
        if LEDGER_TOPIC not in await admin.list_topics(include_internal=True):
            return {}
        count = len((await admin.describe_topics([LEDGER_TOPIC]))[LEDGER_TOPIC].partitions)
    numbers = range(count) if sink is None else [partition_for_key(sink.name.encode(), count)]
    partitions = [TopicPartition(LEDGER_TOPIC, number) for number in numbers]
    async with brokers.consumer("read_uncommitted") as consumer:
        ends = await consumer.end_offsets(partitions)
    found: dict[str, LedgerEntry] = {}
    gives_up_at = time.monotonic() + brokers.timeout_ms / 1000
    async with brokers.consumer("read_committed") as consumer:
        consumer.assign(partitions)
        consumer.seek_to_beginning()
        while not await _is_read(consumer, ends):
            if time.monotonic() > gives_up_at:
                raise RetriableError(
                    f"{LEDGER_TOPIC} cannot be read to its end, because a transaction in it remains open"
                )
            for records in (await consumer.getmany(timeout_ms=POLL_MS)).values():
                for record in records:
                    name = (record.key or b"").decode("utf-8", "replace")
                    if record.value is None:
                        found.pop(name, None)
                    elif sink is None or name == sink.name:
                        found[name] = LedgerEntry.from_json(record.value)
    return found


async def _is_read(consumer: Consumer, ends: dict[TopicPartition, int]) -> bool:
    positions = await asyncio.gather(*(consumer.position(partition) for partition in ends))
    return all(position >= end for position, end in zip(positions, ends.values(), strict=True))


COMMIT, ABORT = "commit", "abort"


@dataclass(slots=True)
class SinkState:
    """A sink's state. `entry` is None before the first decision. `open` lists the open transactions of the sink's
    tasks, which delay read_committed consumers."""

    name: str
    entry: LedgerEntry | None
    open: list[TransactionDescription] = field(default_factory=list)

    @property
    def since_ms(self) -> int | None:
        """The time at which the oldest open transaction began, or None if no transaction is open."""
        return min((each.started_ms for each in self.open if each.started_ms is not None), default=None)

    def verdict(self, transactional_id: str) -> str:
        """Returns how `recover` ends a transaction: COMMIT if the ledger has decided the transaction, otherwise
        ABORT."""
        return verdict(self.entry, transactional_id)


def verdict(entry: LedgerEntry | None, transactional_id: str) -> str:
    is_decided = entry is not None and any(part.transactional_id == transactional_id for part in entry.parts)
    return COMMIT if is_decided else ABORT


async def sinks(brokers: Brokers) -> list[SinkState]:
    """Returns all sinks with a record in the ledger or an open transaction, sorted by name."""
    found = {name: SinkState(name, entry) for name, entry in (await read_entries(brokers)).items()}
    async with brokers.admin() as admin:
        for listed in await admin.list_transactions(states=[ONGOING]):
            task = task_of(listed.transactional_id)
            if task is None:
                continue
            state = found.setdefault(task.sink, SinkState(task.sink, None))
            try:
                described = await admin.describe_transactions([listed.transactional_id])
            except ClientError as error:
                if error.code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                    continue
                raise
            state.open += [each for each in described.values() if each.state == ONGOING]
    return [found[name] for name in sorted(found)]


async def verdicts(brokers: Brokers, transactional_ids: Iterable[str]) -> Mapping[str, tuple[str, str]]:
    """Returns the sink's name and the ledger's verdict for each id that belongs to a sink. Leaves out all other ids."""
    tasks = {each: task for each in transactional_ids if (task := task_of(each)) is not None}
    entries = await read_entries(brokers) if tasks else {}
    return {each: (task.sink, verdict(entries.get(task.sink), each)) for each, task in tasks.items()}
