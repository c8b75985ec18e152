"""IDM: sequence numbers and epochs of idempotent and transactional producers."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Final

from odradek.protocol.api_keys import ApiKey
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.end_txn_response import EndTxnResponse
from odradek.protocol.messages.init_producer_id_response import InitProducerIdResponse
from odradek.protocol.messages.produce_request import ProduceRequest
from odradek.testing.judge.exchanges import AnswerFate, Batch, Exchange, knows
from odradek.testing.judge.rule import Family, L, M, ProtocolRule, S
from odradek.testing.judge.rules.produce import partition_errors, without_log_start
from odradek.testing.judge.scene import Scene

WRAP: Final = 2**31
MOST_IN_FLIGHT: Final = 5
MOST_REMEMBERED: Final = 64  # maximum number of remembered batches per partition
NEARLY_EXHAUSTED: Final = 32_000
TOO_LARGE: Final = ErrorCode.MESSAGE_TOO_LARGE.value
DUPLICATE: Final = ErrorCode.DUPLICATE_SEQUENCE_NUMBER.value
UNKNOWN_TOPIC_ID: Final = ErrorCode.UNKNOWN_TOPIC_ID.value
UNKNOWN_PRODUCER: Final = ErrorCode.UNKNOWN_PRODUCER_ID.value
OUT_OF_ORDER: Final = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER.value
E = ErrorCode
# Errors that prove that a batch was not written. After any other error it may have been written.
NOT_WRITTEN: Final = frozenset(
    code.value
    for code in (
        E.CORRUPT_MESSAGE,
        E.MESSAGE_TOO_LARGE,
        E.INVALID_TOPIC_EXCEPTION,
        E.RECORD_LIST_TOO_LARGE,
        E.NOT_ENOUGH_REPLICAS,
        E.INVALID_REQUIRED_ACKS,
        E.TOPIC_AUTHORIZATION_FAILED,
        E.CLUSTER_AUTHORIZATION_FAILED,
        E.INVALID_TIMESTAMP,
        E.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        E.POLICY_VIOLATION,
        E.OUT_OF_ORDER_SEQUENCE_NUMBER,
        E.INVALID_PRODUCER_EPOCH,
        E.INVALID_TXN_STATE,
        E.INVALID_PRODUCER_ID_MAPPING,
        E.CONCURRENT_TRANSACTIONS,
        E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        E.UNKNOWN_PRODUCER_ID,
        E.UNSUPPORTED_COMPRESSION_TYPE,
        E.INVALID_RECORD,
        E.PRODUCER_FENCED,
        E.UNKNOWN_TOPIC_ID,
        E.TRANSACTION_ABORTABLE,
    )
)

# fmt: off
RULES = (
    ProtocolRule("IDM.1", M, "The first batch of a partition under a producer id and epoch has sequence 0",
        "a first batch of a producer id whose InitProducerId is in the recording"),
    ProtocolRule("IDM.2", L,
        "The next base sequence is last + count, and 0 after 2^31 - 1; no sequence is used for other records again",
        "a second batch"),
    ProtocolRule("IDM.3", L, "A retry has the same sequence, the same count and the same records",
        "a batch that is sent again"),
    ProtocolRule("IDM.4", M, "At most five batches of a partition are in flight", "a second batch in flight"),
    ProtocolRule("IDM.5", M, "An abandoned batch leaves no gap: the client increases the epoch, or the producer fails",
        "a batch on a new connection"),
    ProtocolRule("IDM.6", M,
        "After UNKNOWN_PRODUCER_ID or OUT_OF_ORDER_SEQUENCE_NUMBER for the oldest batch the epoch increases",
        "a batch after such an error; UNKNOWN_PRODUCER_ID must come with the log start offset"),
    ProtocolRule("IDM.7", M, "DUPLICATE_SEQUENCE_NUMBER means success: the client does not send the batch again",
        "a batch after DUPLICATE_SEQUENCE_NUMBER"),
    ProtocolRule("IDM.8", M,
        "A producer id's epoch never decreases on a partition; a transactional producer does not choose its epoch",
        "a batch of a producer id whose InitProducerId is in the recording"),
    ProtocolRule("IDM.9", S, "After the last epoch the producer gets a new producer id instead of a negative epoch",
        "a batch with an epoch of 32,000 or more, or a negative one"),
    ProtocolRule("IDM.10", S, "An idempotent producer sends no batch without producer id and sequence",
        "a batch to a partition after one with a producer id on that connection"),
)
# fmt: on


@dataclass(slots=True)
class Issued:
    """The epochs of a producer id that responses have issued, and the last of these responses."""

    epochs: set[int] = field(default_factory=set)
    by: Exchange | None = None


@dataclass(slots=True)
class SentBatch:
    """A batch that may be retried: its last copy, and the exchange that carried it first.

    doubtful  number of copies without a response that proves that they were not written
    acked     the response that acknowledged the batch
    """

    batch: Batch | None = None
    first: Exchange | None = None
    doubtful: int = 0
    acked: Exchange | None = None

    def differs(self, batch: Batch) -> bool:
        """Returns whether a batch with the same sequence has other records. Clients that rebuild a batch for a retry
        give it new timestamps in the header, but the bytes of its records stay the same. If the recording lacks the
        records, a difference is certain only if the timestamps are equal or the first batch was acknowledged."""
        before = self.batch
        if before is None or before.header.crc == batch.header.crc:
            return False
        if before.header.last_offset_delta != batch.header.last_offset_delta:
            return True
        if before.content is not None and batch.content is not None:
            return before.content != batch.content
        return self.acked is not None or before.header.base_timestamp == batch.header.base_timestamp

    @property
    def is_refused(self) -> bool:
        """Whether every copy was refused, so that its sequence may be used for other records."""
        return self.batch is not None and self.doubtful == 0 and self.acked is None


@dataclass(slots=True)
class Line:
    """Batches of one producer id and epoch for one partition. `acked` is the next sequence that is not acknowledged."""

    next: int = -1
    acked: int = 0
    last: Exchange | None = None
    counts: OrderedDict[int, int] = field(default_factory=OrderedDict)
    is_split: bool = False
    failed: Exchange | None = None  # the response after which the epoch must be bumped
    duplicates: dict[int, Exchange] = field(default_factory=dict)
    in_flight: set[int] = field(default_factory=set)


@dataclass(slots=True)
class WithoutTopic:
    """Sequences of one producer id and epoch, for one partition index, that were sent after their topic was deleted. A
    retry keeps its sequence (IDM.3), even if it becomes the first batch of a topic that was created again."""

    sequences: set[int] = field(default_factory=set)


@dataclass(slots=True)
class Highest:
    """The producer whose batches a connection last carried for a partition."""

    producer_id: int = -1
    epoch: int = -1
    at: Exchange | None = None
    failed: Exchange | None = None


def produced(exchange: Exchange, scene: Scene) -> None:
    request = exchange.request
    assert isinstance(request, ProduceRequest)
    connection = exchange.connection
    for batch in exchange.batches:
        header = batch.header
        highest = scene.at(Highest, connection.number, *batch.place)
        if not header.has_producer_id:
            if highest.at is not None:
                scene.broken("IDM.10", exchange, "a batch without producer id and sequence", highest.at)
            continue
        if highest.at is not None:
            scene.kept("IDM.10", exchange)
        producer = header.producer_id, header.producer_epoch
        scene.join(connection, "producer", *producer)
        if header.producer_epoch < 0 or header.producer_epoch >= NEARLY_EXHAUSTED:
            scene.decide("IDM.9", header.producer_epoch >= 0, exchange, f"epoch {header.producer_epoch}")
        issued = scene.at(Issued, header.producer_id)
        if issued.by is not None:
            why = _wrong_epoch(batch, request.transactional_id is not None, issued, highest)
            scene.decide("IDM.8", why is None, exchange, why or "", issued.by, highest.at)
        line = scene.at(Line, *_place_in_line(batch))
        _in_line(exchange, batch, line, issued, scene)
        _after_errors(exchange, batch, line, highest, scene)
        line.in_flight.add(exchange.number)
        highest.producer_id, highest.epoch, highest.at = *producer, exchange


def _wrong_epoch(batch: Batch, is_transactional: bool, issued: Issued, highest: Highest) -> str | None:
    header = batch.header
    if highest.producer_id == header.producer_id and header.producer_epoch < highest.epoch:
        return f"epoch {header.producer_epoch} after epoch {highest.epoch}"
    if is_transactional and header.producer_epoch not in issued.epochs:
        return f"epoch {header.producer_epoch}, which was in no answer"
    return None


def _place_in_line(batch: Batch) -> tuple[Hashable, ...]:
    """Returns the key of the Line of a batch. A topic that was created again has another one, so sequences may start at
    0 again."""
    return batch.header.producer_id, batch.header.producer_epoch, *batch.place


def _in_line(exchange: Exchange, batch: Batch, line: Line, issued: Issued, scene: Scene) -> None:
    sequence, count = batch.header.base_sequence, batch.header.last_offset_delta + 1
    sent = scene.at(SentBatch, *_place_in_line(batch), sequence)
    if line.next < 0:
        header = batch.header
        untaken = scene.at(WithoutTopic, header.producer_id, header.producer_epoch, batch.partition).sequences
        if issued.by is not None and sequence not in untaken and not batch.continues:
            scene.decide("IDM.1", sequence == 0, exchange, f"the first batch has sequence {sequence}", issued.by)
        untaken.clear()
        line.acked = sequence
    elif sequence in line.counts and sequence != line.next and not (sent.is_refused and sent.differs(batch)):
        first_count = None if line.is_split else line.counts[sequence]
        _sent_again(exchange, batch, first_count, sent, line.last, scene)
        sent.doubtful += 1
        return
    elif sequence in line.counts and sequence != line.next:
        pass  # the earlier batch was refused, so its sequence may be used again
    elif not line.is_split:
        is_next = sequence == line.next
        is_ahead = 0 < (sequence - line.next) % WRAP < WRAP // 2
        why = f"sequence {sequence} instead of {line.next}"
        on_new = line.last is not None and line.last.connection is not exchange.connection
        rule = "IDM.5" if on_new and (is_next or is_ahead) else "IDM.2"
        scene.decide(rule, is_next, exchange, why, line.last)
        if on_new and is_next:
            scene.kept("IDM.2", exchange)
    sent.batch, sent.first, sent.doubtful, sent.acked = batch, exchange, 1, None
    line.counts[sequence] = count
    if len(line.counts) > MOST_REMEMBERED:
        line.counts.popitem(last=False)
    line.next = (sequence + count) % WRAP
    line.last = exchange


def _sent_again(
    exchange: Exchange, batch: Batch, first_count: int | None, sent: SentBatch, last: Exchange | None, scene: Scene
) -> None:
    """Decides IDM.3 for a batch whose sequence was used before, and IDM.2 if the earlier batch was acknowledged.
    `first_count` is the number of records of the earlier batch, or None if batches were split, because then its first
    part has the same sequence."""
    sequence, count = batch.header.base_sequence, batch.header.last_offset_delta + 1
    differs = sent.differs(batch)
    if first_count is not None:
        differs = differs or count != first_count
        if count != first_count:
            why = f"{count} records with sequence {sequence}, but {first_count} records before"
        else:
            why = f"other records with sequence {sequence} are lost, because the broker treats them as a duplicate"
        scene.decide("IDM.3", not differs, exchange, why, sent.first or last)
    if differs and sent.acked is not None and knows(exchange, sent.acked):
        why = f"sequence {sequence} was acknowledged, and is used again: the new records are lost as a duplicate"
        scene.broken("IDM.2", exchange, why, sent.acked)


def _after_errors(exchange: Exchange, batch: Batch, line: Line, highest: Highest, scene: Scene) -> None:
    duplicate = line.duplicates.get(batch.header.base_sequence)
    if duplicate is not None and knows(exchange, duplicate):
        scene.broken("IDM.7", exchange, "the batch is sent again after DUPLICATE_SEQUENCE_NUMBER", duplicate)
    elif line.duplicates and all(knows(exchange, each) for each in line.duplicates.values()):
        scene.kept("IDM.7", exchange)
        line.duplicates.clear()
    if line.failed is not None and knows(exchange, line.failed):
        scene.broken("IDM.6", exchange, f"the producer continues with epoch {batch.header.producer_epoch}", line.failed)
    elif highest.failed is not None and knows(exchange, highest.failed) and line.failed is None:
        scene.kept("IDM.6", exchange)
        highest.failed = None
    if len(line.in_flight) > 0:
        flying = [each for number, each in exchange.connection.waiting.items() if number in line.in_flight]
        if flying:
            scene.decide(
                "IDM.4", len(flying) < MOST_IN_FLIGHT, exchange, f"{len(flying) + 1} batches are in flight", *flying
            )


def answered(exchange: Exchange, scene: Scene) -> None:
    errors = partition_errors(exchange)
    nowhere = without_log_start(exchange)
    for batch in exchange.batches:
        header = batch.header
        if not header.has_producer_id:
            continue
        line = scene.at(Line, *_place_in_line(batch))
        line.in_flight.discard(exchange.number)
        code = errors.get(batch.place)
        if exchange.fate is not AnswerFate.ANSWERED or code is None:
            continue
        is_in_line = header.base_sequence == line.acked
        sent = scene.seen(SentBatch, *_place_in_line(batch), header.base_sequence)
        if sent is not None and sent.batch is not None and sent.batch.header.crc == header.crc:
            if code in (0, DUPLICATE):
                sent.acked = exchange
            elif code in NOT_WRITTEN:
                sent.doubtful = max(0, sent.doubtful - 1)
        if code in (0, DUPLICATE):
            if is_in_line or code == 0:
                line.acked = (header.base_sequence + header.last_offset_delta + 1) % WRAP
            if code == DUPLICATE:
                line.duplicates[header.base_sequence] = exchange
        elif code == TOO_LARGE:
            line.is_split = True
        elif code == UNKNOWN_TOPIC_ID:
            sequences = scene.at(WithoutTopic, header.producer_id, header.producer_epoch, batch.partition).sequences
            if len(sequences) < MOST_REMEMBERED:
                sequences.add(header.base_sequence)
        elif code == UNKNOWN_PRODUCER and (batch.place in nowhere or header.base_sequence == 0):
            # Kafka's own client repeats the request until a response contains the log start offset. It also repeats the
            # batch with sequence 0, because a broker accepts the first batch of any producer.
            continue
        elif code in (UNKNOWN_PRODUCER, OUT_OF_ORDER) and is_in_line:
            line.failed = exchange
            scene.at(Highest, exchange.connection.number, *batch.place).failed = exchange


def issues(exchange: Exchange, scene: Scene) -> None:
    answer = exchange.answer
    if (
        isinstance(answer, InitProducerIdResponse | EndTxnResponse)
        and answer.error_code == 0
        and answer.producer_id >= 0
    ):
        issued = scene.at(Issued, answer.producer_id)
        issued.epochs.add(answer.producer_epoch)
        issued.by = exchange
        scene.join(exchange.connection, "producer", answer.producer_id, answer.producer_epoch)


FAMILY = Family(
    RULES,
    sent={ApiKey.PRODUCE: (produced,)},
    answered={
        ApiKey.PRODUCE: (answered,),
        ApiKey.INIT_PRODUCER_ID: (issues,),
        ApiKey.END_TXN: (issues,),
    },
)
