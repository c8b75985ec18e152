"""A sink's task, which writes its rows in a separate transaction (docs/spec/spark.md#s2).

Rows are passed to the producer as columns, grouped by topic and partition. A digest covers all the task's rows.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash
from numpy.typing import NDArray

from odradek.client import ClientError
from odradek.client.columns.records import HEADERS_TYPE
from odradek.client.sync import Admin, Producer
from odradek.protocol.errors import ErrorCode
from odradek.spark.names import Sink
from odradek.spark.options import DeliveryMode, OptionError, SinkOptions
from odradek.spark.steps import ObserveTask, TaskStep, observe_no_task
from odradek.spark.two_phase import DIGEST_MASK, SinkError, Vote

_M = np.uint64(0x5BD1E995)
_32_BITS = np.uint64(0xFFFF_FFFF)
_BYTE, _2_BYTES, _3_BYTES = np.uint64(8), np.uint64(16), np.uint64(24)
_SEED = 0x9747B28C
# Time to wait for a topic that has just been created, which some brokers may not know yet.
TOPIC_TIMEOUT_MS = 5_000
_NO_KEY = 1  # seed of the digest of a row without a key
_NULL = 0x9E3779B97F4A7C15


class RunSealed(SinkError):
    """The driver has ended this write, so its tasks must not open any more transactions."""


@dataclass(frozen=True, slots=True)
class PartitionRows:
    """The rows for one partition, in their original order.

    is_placed  for each row, whether the frame specified the partition; None if the frame has no column `partition`
    """

    topic: str
    partition: int
    keys: pa.Array | None
    values: pa.Array
    headers: pa.Array | None
    is_placed: NDArray[np.bool_] | None = None

    def digest(self) -> int:
        """Computes the digest of version DIGEST_OF_ALL_COLUMNS. It covers topic, key, value and headers, and also the
        partition if the frame specified it. It does not depend on the rows' order or how they are divided into
        batches."""
        topic = xxhash.xxh3_64_intdigest(self.topic.encode())
        anywhere, here = _folded(topic, None), _folded(topic, b"%d" % self.partition)
        nothing = [None] * len(self.values)
        placed = nothing if self.is_placed is None else self.is_placed.tolist()
        keys = nothing if self.keys is None else self.keys.to_pylist()
        headers = nothing if self.headers is None else self.headers.to_pylist()
        total = 0
        for is_placed, key, value, own in zip(placed, keys, self.values.to_pylist(), headers, strict=True):
            row = _folded(_folded(here if is_placed else anywhere, key), value)
            for header in own or ():
                row = _folded(_folded(row, header["key"].encode()), header["value"])
            total += row
        return total & DIGEST_MASK

    def first_digest(self) -> int:
        """Computes the digest of version DIGEST_OF_KEYS_AND_VALUES, for comparison with a digest stored by an earlier
        release."""
        digest = xxhash.xxh3_64_intdigest
        topic = digest(self.topic.encode())
        keys = [None] * len(self.values) if self.keys is None else self.keys.to_pylist()
        total = 0
        for key, value in zip(keys, self.values.to_pylist(), strict=True):
            seed = topic ^ (_NO_KEY if key is None else digest(key))
            total += seed if value is None else digest(value, seed)
        return total & DIGEST_MASK


def _folded(seed: int, value: bytes | None) -> int:
    """Extends a hash with one more value. `seed` is the hash of everything before it."""
    return xxhash.xxh3_64_intdigest(b"", seed ^ _NULL) if value is None else xxhash.xxh3_64_intdigest(value, seed)


def groups(
    batch: pa.RecordBatch, topic: str | None, partition_count: Callable[[str], int], rng: random.Random
) -> Iterator[PartitionRows]:
    """Groups rows by topic and partition. The rows have the columns of Spark's Kafka sink: value, and optionally key,
    headers, topic and partition. The argument `topic` overrides the column. Raises OptionError if the columns cannot be
    written."""
    names = set(batch.schema.names)
    if "value" not in names:
        raise OptionError("a column 'value' (string or binary) is required")
    if topic is None and "topic" not in names:
        raise OptionError("the topic is missing: set the option topic, or add a column 'topic'")
    values = _bytes(batch, "value")
    keys = _bytes(batch, "key") if "key" in names else None
    headers = batch.column("headers").cast(HEADERS_TYPE) if "headers" in names else None
    for name, rows in _by_topic(batch, topic):
        count = partition_count(name)
        own_keys = None if keys is None else keys.take(rows)
        chosen = _partitions(own_keys, len(rows), count, rng)
        placed: NDArray[np.bool_] | None = None
        if "partition" in names:
            column = batch.column("partition").take(rows)
            given = np.asarray(pc.fill_null(column, -1)).astype(np.int64)
            placed = given >= 0
            chosen = np.where(placed, given, chosen)
        for partition in np.unique(chosen).tolist():
            at = np.flatnonzero(chosen == partition)
            own = rows.take(pa.array(at))
            yield PartitionRows(
                name,
                partition,
                None if keys is None else keys.take(own),
                values.take(own),
                None if headers is None else headers.take(own),
                None if placed is None else placed[at],
            )


def partitions_for_keys(keys: pa.Array, partition_count: int) -> NDArray[np.int64]:
    """Returns the partition for each key of a binary array without nulls, as `partition_for_key` does for a single
    key."""
    offsets = np.frombuffer(keys.buffers()[1], dtype=np.int32)[keys.offset : keys.offset + len(keys) + 1].astype(int)
    content = np.frombuffer(keys.buffers()[2] or b"", dtype=np.uint8)
    lengths = np.diff(offsets)
    hashes = np.zeros(len(keys), dtype=np.uint32)
    for length in np.unique(lengths).tolist():
        rows = np.flatnonzero(lengths == length)
        hashes[rows] = _murmur2(content[offsets[rows][:, None] + np.arange(length)])
    return (hashes & np.uint32(0x7FFFFFFF)).astype(np.int64) % partition_count


def _murmur2(rows: NDArray[np.uint8]) -> NDArray[np.uint32]:
    """Hashes keys of equal length, one per row. The arithmetic uses 64 bits, so that products do not overflow before
    they are masked."""
    count, length = rows.shape
    wide = rows.astype(np.uint64)
    hashed = np.full(count, _SEED ^ length, dtype=np.uint64)
    for at in range(0, length - length % 4, 4):
        word = wide[:, at] | wide[:, at + 1] << _BYTE | wide[:, at + 2] << _2_BYTES | wide[:, at + 3] << _3_BYTES
        word = word * _M & _32_BITS
        word = (word ^ word >> _3_BYTES) * _M & _32_BITS
        hashed = hashed * _M & _32_BITS ^ word
    rest = length % 4
    if rest:
        for index in range(rest):
            hashed ^= wide[:, length - rest + index] << np.uint64(8 * index)
        hashed = hashed * _M & _32_BITS
    hashed = (hashed ^ hashed >> np.uint64(13)) * _M & _32_BITS
    return (hashed ^ hashed >> np.uint64(15)).astype(np.uint32)


def _partitions(keys: pa.Array | None, count: int, partition_count: int, rng: random.Random) -> NDArray[np.int64]:
    """Chooses a partition for each row by the hash of its key. All rows without a key go to one partition, which is
    chosen at random on each call."""
    chosen = np.full(count, rng.randrange(partition_count), dtype=np.int64)
    if keys is not None:
        rows = np.flatnonzero(np.asarray(keys.is_valid()))
        if rows.size:
            chosen[rows] = partitions_for_keys(keys.take(pa.array(rows)), partition_count)
    return chosen


def _by_topic(batch: pa.RecordBatch, topic: str | None) -> Iterator[tuple[str, Any]]:
    if topic is not None:
        yield topic, pa.array(np.arange(len(batch)))
        return
    column = batch.column("topic")
    if column.null_count:
        raise OptionError("a row has no topic: set the option topic, or the column in every row")
    for name in pc.unique(column).to_pylist():
        yield name, pa.array(np.flatnonzero(np.asarray(pc.equal(column, name))))


# If `spark.sql.execution.arrow.useLargeVarTypes` is set, Spark passes Arrow's large types.
_TEXTS = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)


def _bytes(batch: pa.RecordBatch, name: str) -> pa.Array:
    column = batch.column(name)
    if not any(is_of_type(column.type) for is_of_type in _TEXTS):
        raise OptionError(f"the column {name!r} is {column.type}, but must be string or binary")
    return column.cast(pa.binary())


_UNPREPARED = (ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, ErrorCode.UNSUPPORTED_VERSION)


def write_rows(
    options: SinkOptions,
    sink: Sink,
    *,
    run: str,
    batch: int,
    partition: int,
    attempt: int,
    rows: Iterable[pa.RecordBatch],
    observe: ObserveTask = observe_no_task,
) -> Vote | None:
    """Writes rows in a transaction, or without one if `delivery` is atLeastOnce. Returns the task's vote, or None if
    the driver has nothing to decide because the task has no rows or writes without transactions.

    If an error is raised, the transaction is aborted.
    """
    task_id = sink.task_id(run, batch, partition, attempt, f"{random.getrandbits(64):016x}")
    task = _Task(options, task_id, sink.seal_id(run), observe)
    try:
        observe(TaskStep.BEGUN)
        for each in rows:
            task.write(each)
        return task.vote(sink.query, run, partition, attempt)
    finally:
        task.close()


class _Task:
    def __init__(self, options: SinkOptions, transactional_id: str, seal_id: str, observe: ObserveTask) -> None:
        self._options = options
        self._transactional_id = transactional_id
        self._seal_id = seal_id
        self._observe = observe
        self._producer: Producer | None = None
        self._partition_counts: dict[str, int] = {}
        self._rng = random.Random()
        self._rows = self._bytes = self._digest = 0
        # The ledger may contain the key with a digest computed by an earlier release.
        self._first_digest: int | None = None if options.idempotency_key is None else 0

    def write(self, batch: pa.RecordBatch) -> None:
        if not len(batch):
            return
        producer = self._producer or self._started()
        for group in groups(batch, self._options.topic, self._partition_count, self._rng):
            producer.send_batch(group.topic, group.partition, group.keys, group.values, None, group.headers)
            self._digest = (self._digest + group.digest()) & DIGEST_MASK
            if self._first_digest is not None:
                self._first_digest = (self._first_digest + group.first_digest()) & DIGEST_MASK
        self._rows += len(batch)
        self._bytes += batch.nbytes

    def vote(self, query: str, run: str, partition: int, attempt: int) -> Vote | None:
        if self._producer is None:
            return None
        self._observe(TaskStep.WRITTEN)
        if self._options.delivery is DeliveryMode.AT_LEAST_ONCE:
            self._producer.flush()
            return None
        state = self._producer.prepare_transaction()
        self._observe(TaskStep.PREPARED)
        name = self._transactional_id
        return Vote(
            query, run, partition, attempt, name, state, self._rows, self._bytes, self._digest, self._first_digest
        )

    def close(self) -> None:
        if self._producer is not None:
            self._producer.close()

    def _started(self) -> Producer:
        settings: dict[str, Any] = {
            "bootstrap_servers": self._options.brokers.bootstrap_servers,
            "bootstrap_timeout_ms": self._options.brokers.bootstrap_timeout_ms,
            **self._options.brokers.security,
            **self._options.producer,
        }
        if self._options.delivery is DeliveryMode.EXACTLY_ONCE:
            settings |= {"transactional_id": self._transactional_id, "two_phase_commit": True}
        self._producer = producer = Producer(**settings)
        producer.start()
        if self._options.delivery is DeliveryMode.EXACTLY_ONCE:
            self._initialize(producer)
            self._observe(TaskStep.NAMED)
            self._require_unsealed()
            producer.begin_transaction()
        self._observe(TaskStep.OPENED)
        return producer

    def _initialize(self, producer: Producer) -> None:
        try:
            producer.init_transactions()
        except ClientError as error:
            if error.code not in _UNPREPARED:
                raise
            raise ClientError(
                f"the broker does not prepare transactions of {self._transactional_id!r}: it must be started with"
                " transaction.two.phase.commit.enable=true (KIP-939), and if it has ACLs, these must allow"
                f" TWO_PHASE_COMMIT and WRITE on transactional ids with the prefix {self._options.prefix!r}."
                " The option delivery=atLeastOnce needs no transactions",
                error.code,
            ) from error

    def _require_unsealed(self) -> None:
        """Raises RunSealed if the driver has ended this write. If the driver seals the run only after this check, it
        finds the transactional id that `_initialize` has registered and ends any transaction opened under that id."""
        with self._admin(self._options.brokers.timeout_ms) as admin:
            try:
                admin.describe_transactions([self._seal_id])
            except ClientError as error:
                if error.code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                    return
                raise
        raise RunSealed(f"the driver has ended this write, so no transaction is opened for {self._transactional_id!r}")

    def _admin(self, timeout_ms: float) -> Admin:
        brokers = self._options.brokers
        return Admin(
            bootstrap_servers=brokers.bootstrap_servers,
            bootstrap_timeout_ms=brokers.bootstrap_timeout_ms,
            default_api_timeout_ms=timeout_ms,
            **brokers.security,
        )

    def _partition_count(self, topic: str) -> int:
        count = self._partition_counts.get(topic)
        if count is None:
            with self._admin(TOPIC_TIMEOUT_MS) as admin:
                try:
                    count = len(admin.describe_topics([topic])[topic].partitions)
                except ClientError as error:
                    if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                        raise ClientError(f"the topic {topic!r} does not exist: create it first", error.code) from error
                    raise
            self._partition_counts[topic] = count
        return count
