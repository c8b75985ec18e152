"""Transactional producers that behave like real clients, with either the old protocol or that of KIP-890. Each producer
is a script.

    answers = yield [Ask(request, version), …]      sends all requests together; None for missing responses
    yield 100                                       continues 100 ms later

A producer records everything that it learns about its transactions in `Attempt`s, which the world's checks use.
"""

from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from odradek.protocol.compression import Compression
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.add_offsets_to_txn_request import AddOffsetsToTxnRequest
from odradek.protocol.messages.add_partitions_to_txn_request import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from odradek.protocol.messages.end_txn_request import EndTxnRequest
from odradek.protocol.messages.init_producer_id_request import InitProducerIdRequest
from odradek.protocol.messages.produce_request import ProduceRequest
from odradek.protocol.messages.txn_offset_commit_request import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from odradek.protocol.struct import Message
from tests.checker.history import Answer, TopicPartition
from tests.support.batches import batch_by
from tests.support.requests import produce_request

E = ErrorCode
INPUT = "input"  # the topic whose offsets the group commits
NO_PAIR = (-1, -1)
TRIES = 8
RETRIABLE = frozenset(
    {
        E.CONCURRENT_TRANSACTIONS,
        E.COORDINATOR_LOAD_IN_PROGRESS,
        E.COORDINATOR_NOT_AVAILABLE,
        E.NOT_COORDINATOR,
        E.NOT_ENOUGH_REPLICAS,
        E.NOT_LEADER_OR_FOLLOWER,
        E.UNKNOWN_TOPIC_OR_PARTITION,
        E.KAFKA_STORAGE_ERROR,
        E.REQUEST_TIMED_OUT,
    }
)
# These errors do not show whether the request took effect.
INCONCLUSIVE = RETRIABLE - {E.CONCURRENT_TRANSACTIONS, E.COORDINATOR_LOAD_IN_PROGRESS}


@dataclass(frozen=True, slots=True)
class Ask:
    """A request and its version.

    client  name of the connection to use; empty for the producer's own connection
    """

    message: Message
    version: int
    client: str = ""


Script = Generator[Sequence[Ask] | int, list[Any], None]


@dataclass(slots=True)
class Batch:
    """Records for one partition. Their sequence numbers do not change when the batch is sent again."""

    partition: TopicPartition
    values: list[bytes]
    base_sequence: int
    answer: Answer = Answer.UNKNOWN
    base_offset: int | None = None


@dataclass(slots=True)
class Attempt:
    """A transaction as its producer knows it. `is_asked` is true if the producer has requested the commit."""

    name: str
    producer: str
    group: str
    batches: list[Batch] = field(default_factory=list)
    offset: int | None = None  # the offset that the transaction commits for its group
    offset_answer: Answer = Answer.UNKNOWN
    is_asked: bool = False
    answer: Answer = Answer.UNKNOWN

    @property
    def may_be_committed(self) -> bool:
        return self.is_asked and self.answer is not Answer.NO


class ProducerEnded(Exception):
    """Raised when a producer is fenced or cannot continue. A new producer replaces it."""


class Book:
    """All transactions of a run, and the values and offsets that belong to each of them."""

    def __init__(self) -> None:
        self.attempts: list[Attempt] = []
        self.by_value: dict[bytes, Attempt] = {}
        self.by_offset: dict[tuple[str, int], Attempt] = {}
        self.next_offsets: dict[str, int] = {}

    def begin(self, producer: str, group: str) -> Attempt:
        attempt = Attempt(f"{producer}/{len(self.attempts)}", producer, group)
        self.attempts.append(attempt)
        return attempt

    def next_offset(self, attempt: Attempt) -> int:
        """Returns the offset that this transaction commits. Each transaction of a group advances the offset by one."""
        attempt.offset = self.next_offsets[attempt.group] = self.next_offsets.get(attempt.group, 0) + 1
        self.by_offset[attempt.group, attempt.offset] = attempt
        return attempt.offset


class Producer:
    """A process that uses a transactional id. If `is_new` is set, it uses the protocol of transaction.version 2."""

    def __init__(
        self,
        name: str,
        transactional_id: str,
        rng: Random,
        book: Book,
        partitions: Sequence[TopicPartition],
        *,
        is_new: bool,
        now_ms: Any,
    ) -> None:
        self.name = name
        self.transactional_id = transactional_id
        self.connection = 0  # A new connection discards all requests and responses in transit on the old one.
        self.is_new = is_new
        self._rng = rng
        self._book = book
        self._partitions = partitions
        self._now_ms = now_ms
        self._pair = NO_PAIR
        self._sequences: dict[TopicPartition, int] = {}
        self._timeout_ms = rng.choice([1_000, 1_000, 20_000])
        self._end_version = 5 if is_new else 3
        self._tries = TRIES  # maximum number of attempts to send a batch

    @property
    def may_be_late(self) -> bool:
        """Returns whether requests may be late. Only with the new protocol can the broker distinguish late requests
        from those of the next transaction."""
        return self.is_new

    def script(self) -> Script:
        try:
            yield from self._initialise()
            while True:
                yield from self._transaction()
                yield self._rng.choice([0, 1, 50])
        except ProducerEnded:
            return

    # --- Methods that repeat a request until its response is usable.

    def _initialise(self) -> Script:
        for _ in range(40):
            request = InitProducerIdRequest(
                transactional_id=self.transactional_id,
                transaction_timeout_ms=self._timeout_ms,
                producer_id=self._pair[0],
                producer_epoch=self._pair[1],
            )
            (answer,) = yield [Ask(request, 4)]
            code = None if answer is None else ErrorCode(answer.error_code)
            if code is E.NONE:
                self._pair = answer.producer_id, answer.producer_epoch
                self._sequences.clear()
                return
            if code is not None and code not in RETRIABLE:
                break
            yield 20
        raise ProducerEnded

    def _transaction(self) -> Script:
        self.connection += 1
        attempt = self._book.begin(self.name, f"group of {self.transactional_id}")
        rng = self._rng
        is_well = True
        is_begun = False
        for _ in range(rng.randint(1, 3)):
            batches = [self._new_batch(attempt) for _ in range(rng.randint(1, 3))]
            if not self.is_new and is_well:
                is_begun = True
                is_well = yield from self._add({each.partition for each in batches})
            if is_well:
                is_begun = True
                is_well = yield from self._produce(batches)
            if rng.random() < 0.04:
                yield rng.choice([1_500, 6_000])  # a pause, for example for a garbage collection
            if not is_well:
                break
        if is_well and rng.random() < 0.6:
            is_begun = True
            is_well = yield from self._commit_offset(attempt)
        wants_commit = is_well and rng.random() < 0.75
        if rng.random() < 0.03:
            raise ProducerEnded  # the process dies
        if is_begun:
            yield from self._end(attempt, is_commit=wants_commit)
        if not self.is_new and not is_well:
            # There may be unacknowledged records, so the producer starts again with a new epoch.
            yield from self._initialise()

    def _new_batch(self, attempt: Attempt) -> Batch:
        partition = self._rng.choice(self._partitions)
        count = self._rng.choice([1, 1, 2])
        sequence = self._sequences.get(partition, 0)
        self._sequences[partition] = sequence + count
        written = sum(len(batch.values) for batch in attempt.batches)
        values = [f"{attempt.name}/{written + number}".encode() for number in range(count)]
        batch = Batch(partition, values, sequence)
        attempt.batches.append(batch)
        for value in values:
            self._book.by_value[value] = attempt
        return batch

    def _add(self, partitions: Iterable[TopicPartition]) -> Generator[Sequence[Ask] | int, list[Any], bool]:
        by_topic: dict[str, list[int]] = {}
        for topic, index in sorted(partitions):
            by_topic.setdefault(topic, []).append(index)
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self._pair[0],
            v3_and_below_producer_epoch=self._pair[1],
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=n, partitions=p) for n, p in by_topic.items()],
        )
        for _ in range(TRIES):
            (answer,) = yield [Ask(request, 3)]
            if answer is not None:
                results = answer.results_by_topic_v3_and_below
                codes = {ErrorCode(p.partition_error_code) for topic in results for p in topic.results_by_partition}
                if codes == {E.NONE}:
                    return True
                if not codes <= RETRIABLE | {E.NONE}:
                    return False
            yield 20
        return False

    def _produce(self, batches: list[Batch]) -> Generator[Sequence[Ask] | int, list[Any], bool]:
        version = 12 if self.is_new else self._rng.choice([9, 10, 11])
        missing = batches
        for _ in range(self._tries):
            answers = yield [Ask(self._produce_request(batch), version) for batch in missing]
            for batch, answer in zip(missing, answers, strict=True):
                if answer is None:
                    continue
                produced = answer.responses[0].partition_responses[0]
                code = ErrorCode(produced.error_code)
                if code is E.NONE:
                    batch.answer, batch.base_offset = Answer.YES, produced.base_offset
                elif code is E.OUT_OF_ORDER_SEQUENCE_NUMBER and self._is_behind_another(batch, missing):
                    continue
                elif code not in RETRIABLE:
                    return False
            missing = [batch for batch in missing if batch.answer is not Answer.YES]
            if not missing:
                return True
            yield 20
        return False

    def _is_behind_another(self, batch: Batch, missing: list[Batch]) -> bool:
        return any(each.partition == batch.partition and each.base_sequence < batch.base_sequence for each in missing)

    def _produce_request(self, batch: Batch) -> ProduceRequest:
        records = self._records(batch)
        topic, index = batch.partition
        return produce_request(topic, records, partition=index, transactional_id=self.transactional_id)

    def _records(self, batch: Batch, key: bytes = b"k", compression: Compression = Compression.NONE) -> bytearray:
        return batch_by(
            self._pair, batch.base_sequence, *batch.values, key=key, at_ms=self._now_ms(), compression=compression
        )

    def _commit_offset(self, attempt: Attempt) -> Generator[Sequence[Ask] | int, list[Any], bool]:
        offset = self._book.next_offset(attempt)
        if not self.is_new:
            add = AddOffsetsToTxnRequest(
                transactional_id=self.transactional_id,
                producer_id=self._pair[0],
                producer_epoch=self._pair[1],
                group_id=attempt.group,
            )
            if not (yield from self._until_none(add, 3, lambda answer: answer.error_code)):
                return False
        partition = TxnOffsetCommitRequestPartition(
            partition_index=0, committed_offset=offset, committed_leader_epoch=-1, committed_metadata=""
        )
        commit = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=attempt.group,
            producer_id=self._pair[0],
            producer_epoch=self._pair[1],
            topics=[TxnOffsetCommitRequestTopic(name=INPUT, partitions=[partition])],
        )
        version = 5 if self.is_new else self._rng.choice([3, 4])
        is_done = yield from self._until_none(commit, version, lambda answer: answer.topics[0].partitions[0].error_code)
        if is_done:
            attempt.offset_answer = Answer.YES
        return is_done

    def _until_none(
        self, request: Message, version: int, code_of: Any
    ) -> Generator[Sequence[Ask] | int, list[Any], bool]:
        for _ in range(TRIES):
            (answer,) = yield [Ask(request, version)]
            if answer is not None:
                code = ErrorCode(code_of(answer))
                if code is E.NONE:
                    return True
                if code not in RETRIABLE:
                    return False
            yield 20
        return False

    def _end(self, attempt: Attempt, *, is_commit: bool) -> Script:
        attempt.is_asked = is_commit
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self._pair[0],
            producer_epoch=self._pair[1],
            committed=is_commit,
        )
        may_have_happened = False
        for _ in range(40):
            (answer,) = yield [Ask(request, self._end_version)]
            code = None if answer is None else ErrorCode(answer.error_code)
            if code is E.NONE:
                attempt.answer = Answer.YES if is_commit else Answer.NO
                if answer.producer_id != NO_PAIR[0]:
                    self._pair = answer.producer_id, answer.producer_epoch
                    self._sequences.clear()
                return
            if code is not None and code not in RETRIABLE:
                attempt.answer = Answer.UNKNOWN if may_have_happened else Answer.NO
                break
            may_have_happened |= code is None or code in INCONCLUSIVE
            yield 20
        raise ProducerEnded
