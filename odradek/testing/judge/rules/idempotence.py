"""Rules IDM, about the sequence numbers and epochs of idempotent and transactional producers."""

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
from odradek.testing.judge.exchanges import AnswerStatus, Batch, Exchange, knows_response
from odradek.testing.judge.rule import Family, L, M, ProtocolRule, S
from odradek.testing.judge.rules.produce import partition_errors, partitions_without_log_start
from odradek.testing.judge.scene import Scene

WRAP: Final = 2**31
MAX_IN_FLIGHT: Final = 5
MAX_REMEMBERED_BATCHES: Final = 64  # maximum number of remembered batches per partition
NEARLY_EXHAUSTED: Final = 32_000
TOO_LARGE: Final = ErrorCode.MESSAGE_TOO_LARGE.value
DUPLICATE: Final = ErrorCode.DUPLICATE_SEQUENCE_NUMBER.value
UNKNOWN_TOPIC_ID: Final = ErrorCode.UNKNOWN_TOPIC_ID.value
UNKNOWN_PRODUCER: Final = ErrorCode.UNKNOWN_PRODUCER_ID.value
OUT_OF_ORDER: Final = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER.value
E = ErrorCode
# Errors that prove that a batch was not written. After any other error, the batch may have been written.
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
        "The next base sequence is last + count, and 0 after 2^31 - 1; no sequence is reused for other records",
        "a second batch"),
    ProtocolRule("IDM.3", L, "A retry has the same sequence, the same count and the same records",
        "a batch that is sent again"),
    ProtocolRule("IDM.4", M, "At most five batches of a partition are in flight", "a second batch in flight"),
    ProtocolRule("IDM.5", M, "An abandoned batch leaves no gap: the client increases the epoch, or the producer fails",
        "a batch on a new connection"),
    ProtocolRule("IDM.6", M,
        "After UNKNOWN_PRODUCER_ID or OUT_OF_ORDER_SEQUENCE_NUMBER for the oldest batch the epoch increases",
        "a batch after OUT_OF_ORDER_SEQUENCE_NUMBER, or after UNKNOWN_PRODUCER_ID with the log start offset"),
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
class IssuedEpochs:
    """The epochs that responses have issued for a producer id. `response` is the last of these responses."""

    epochs: set[int] = field(default_factory=set)
    response: Exchange | None = None


@dataclass(slots=True)
class SentBatch:
    """A batch that the client may retry.

    first_request    the request with the first copy of the batch
    doubtful_copies  number of copies that the broker may have written, because no response proves otherwise
    acknowledgement  the response that acknowledged the batch
    """

    batch: Batch | None = None
    first_request: Exchange | None = None
    doubtful_copies: int = 0
    acknowledgement: Exchange | None = None

    def differs(self, batch: Batch) -> bool:
        """Returns whether `batch`, which has the same sequence, contains different records.

        A client that rebuilds a batch for a retry sets new timestamps in the header, but does not change the records'
        bytes. If the recording does not contain the records, a difference is certain only if the timestamps are equal
        or the first batch was acknowledged.
        """
        before = self.batch
        if before is None or before.header.crc == batch.header.crc:
            return False
        if before.header.last_offset_delta != batch.header.last_offset_delta:
            return True
        if before.content is not None and batch.content is not None:
            return before.content != batch.content
        return self.acknowledgement is not None or before.header.base_timestamp == batch.header.base_timestamp

    @property
    def is_refused(self) -> bool:
        """True if all copies were rejected, in which case the client may use the sequence for other records."""
        return self.batch is not None and self.doubtful_copies == 0 and self.acknowledgement is None


@dataclass(slots=True)
class PartitionSequence:
    """The batches of one producer id and epoch for one partition. `first_unacknowledged` is the lowest sequence that
    has not been acknowledged."""

    next_sequence: int = -1
    first_unacknowledged: int = 0
    last_request: Exchange | None = None
    record_counts: OrderedDict[int, int] = field(default_factory=OrderedDict)
    is_split: bool = False
    fatal_response: Exchange | None = None  # response that requires the producer to increase its epoch
    duplicates: dict[int, Exchange] = field(default_factory=dict)
    in_flight: set[int] = field(default_factory=set)


@dataclass(slots=True)
class WithoutTopic:
    """The sequences that one producer id and epoch used for a partition index after the topic was deleted. A retry
    keeps its sequence (IDM.3), even if its batch becomes the first one of a topic that was created again."""

    sequences: set[int] = field(default_factory=set)


@dataclass(slots=True)
class LastProducer:
    """The producer of a connection's last batch for a partition."""

    producer_id: int = -1
    epoch: int = -1
    last_request: Exchange | None = None
    fatal_response: Exchange | None = None


def on_produce(exchange: Exchange, scene: Scene) -> None:
    request = exchange.request
    assert isinstance(request, ProduceRequest)
    connection = exchange.connection
    for batch in exchange.batches:
        header = batch.header
        last_producer = scene.state(LastProducer, connection.number, *batch.place)
        if not header.has_producer_id:
            if last_producer.last_request is not None:
                scene.record_broken(
                    "IDM.10", exchange, "the batch has no producer id and no sequence", last_producer.last_request
                )
            continue
        if last_producer.last_request is not None:
            scene.record_kept("IDM.10", exchange)
        producer = header.producer_id, header.producer_epoch
        scene.join(connection, "producer", *producer)
        if header.producer_epoch < 0 or header.producer_epoch >= NEARLY_EXHAUSTED:
            scene.decide("IDM.9", header.producer_epoch >= 0, exchange, f"epoch {header.producer_epoch}")
        issued_epochs = scene.state(IssuedEpochs, header.producer_id)
        if issued_epochs.response is not None:
            why = _epoch_violation(batch, request.transactional_id is not None, issued_epochs, last_producer)
            scene.decide("IDM.8", why is None, exchange, why or "", issued_epochs.response, last_producer.last_request)
        order = scene.state(PartitionSequence, *_sequence_key(batch))
        _check_sequence(exchange, batch, order, issued_epochs, scene)
        _check_after_errors(exchange, batch, order, last_producer, scene)
        order.in_flight.add(exchange.number)
        last_producer.producer_id, last_producer.epoch, last_producer.last_request = *producer, exchange


def _epoch_violation(
    batch: Batch, is_transactional: bool, issued_epochs: IssuedEpochs, last_producer: LastProducer
) -> str | None:
    header = batch.header
    if last_producer.producer_id == header.producer_id and header.producer_epoch < last_producer.epoch:
        return f"the batch has epoch {header.producer_epoch} after epoch {last_producer.epoch}"
    if is_transactional and header.producer_epoch not in issued_epochs.epochs:
        return f"the batch has epoch {header.producer_epoch}, which no answer contained"
    return None


def _sequence_key(batch: Batch) -> tuple[Hashable, ...]:
    """Returns the key of a batch's PartitionSequence. A topic that was created again has a different key, so its
    sequences may start at 0."""
    return batch.header.producer_id, batch.header.producer_epoch, *batch.place


def _check_sequence(
    exchange: Exchange, batch: Batch, order: PartitionSequence, issued_epochs: IssuedEpochs, scene: Scene
) -> None:
    sequence, count = batch.header.base_sequence, batch.header.last_offset_delta + 1
    sent_batch = scene.state(SentBatch, *_sequence_key(batch), sequence)
    if order.next_sequence < 0:
        header = batch.header
        untaken = scene.state(WithoutTopic, header.producer_id, header.producer_epoch, batch.partition).sequences
        if issued_epochs.response is not None and sequence not in untaken and not batch.continues:
            scene.decide(
                "IDM.1", sequence == 0, exchange, f"the first batch has sequence {sequence}", issued_epochs.response
            )
        untaken.clear()
        order.first_unacknowledged = sequence
    elif (
        sequence in order.record_counts
        and sequence != order.next_sequence
        and not (sent_batch.is_refused and sent_batch.differs(batch))
    ):
        first_count = None if order.is_split else order.record_counts[sequence]
        _check_retry(exchange, batch, first_count, sent_batch, order.last_request, scene)
        sent_batch.doubtful_copies += 1
        return
    elif sequence in order.record_counts and sequence != order.next_sequence:
        pass  # the earlier batch was rejected, so its sequence may be reused
    elif not order.is_split:
        is_next = sequence == order.next_sequence
        is_ahead = 0 < (sequence - order.next_sequence) % WRAP < WRAP // 2
        why = f"the batch has sequence {sequence} instead of {order.next_sequence}"
        on_new = order.last_request is not None and order.last_request.connection is not exchange.connection
        rule = "IDM.5" if on_new and (is_next or is_ahead) else "IDM.2"
        scene.decide(rule, is_next, exchange, why, order.last_request)
        if on_new and is_next:
            scene.record_kept("IDM.2", exchange)
    sent_batch.batch, sent_batch.first_request, sent_batch.doubtful_copies, sent_batch.acknowledgement = (
        batch,
        exchange,
        1,
        None,
    )
    order.record_counts[sequence] = count
    if len(order.record_counts) > MAX_REMEMBERED_BATCHES:
        order.record_counts.popitem(last=False)
    order.next_sequence = (sequence + count) % WRAP
    order.last_request = exchange


def _check_retry(
    exchange: Exchange,
    batch: Batch,
    first_count: int | None,
    sent_batch: SentBatch,
    last: Exchange | None,
    scene: Scene,
) -> None:
    """Decides IDM.3 for a batch whose sequence was used before. Also decides IDM.2 if the batch has different records
    although the earlier batch was acknowledged.

    first_count  the number of records in the earlier batch, or None if the client splits batches, because the first
                 part of a split batch has the sequence of the original batch.
    """
    sequence, count = batch.header.base_sequence, batch.header.last_offset_delta + 1
    differs = sent_batch.differs(batch)
    if first_count is not None:
        differs = differs or count != first_count
        if count != first_count:
            why = f"sequence {sequence} was sent again with {count} records; the first time, it had {first_count}"
        else:
            why = (
                f"sequence {sequence} was sent again with other records, which are lost because the broker treats"
                " them as a duplicate"
            )
        scene.decide("IDM.3", not differs, exchange, why, sent_batch.first_request or last)
    if differs and sent_batch.acknowledgement is not None and knows_response(exchange, sent_batch.acknowledgement):
        why = (
            f"sequence {sequence} is used again after it was acknowledged, so the broker drops the new records as a"
            " duplicate"
        )
        scene.record_broken("IDM.2", exchange, why, sent_batch.acknowledgement)


def _check_after_errors(
    exchange: Exchange, batch: Batch, order: PartitionSequence, last_producer: LastProducer, scene: Scene
) -> None:
    duplicate = order.duplicates.get(batch.header.base_sequence)
    if duplicate is not None and knows_response(exchange, duplicate):
        scene.record_broken(
            "IDM.7", exchange, "the client sends the batch again after DUPLICATE_SEQUENCE_NUMBER", duplicate
        )
    elif order.duplicates and all(knows_response(exchange, each) for each in order.duplicates.values()):
        scene.record_kept("IDM.7", exchange)
        order.duplicates.clear()
    if order.fatal_response is not None and knows_response(exchange, order.fatal_response):
        scene.record_broken(
            "IDM.6", exchange, f"the producer continues with epoch {batch.header.producer_epoch}", order.fatal_response
        )
    elif (
        last_producer.fatal_response is not None
        and knows_response(exchange, last_producer.fatal_response)
        and order.fatal_response is None
    ):
        scene.record_kept("IDM.6", exchange)
        last_producer.fatal_response = None
    if len(order.in_flight) > 0:
        flying = [each for number, each in exchange.connection.waiting.items() if number in order.in_flight]
        if flying:
            scene.decide(
                "IDM.4", len(flying) < MAX_IN_FLIGHT, exchange, f"{len(flying) + 1} batches are in flight", *flying
            )


def on_produce_response(exchange: Exchange, scene: Scene) -> None:
    errors = partition_errors(exchange)
    without_log_start_offset = partitions_without_log_start(exchange)
    for batch in exchange.batches:
        header = batch.header
        if not header.has_producer_id:
            continue
        order = scene.state(PartitionSequence, *_sequence_key(batch))
        order.in_flight.discard(exchange.number)
        code = errors.get(batch.place)
        if exchange.status is not AnswerStatus.ANSWERED or code is None:
            continue
        is_oldest = header.base_sequence == order.first_unacknowledged
        sent_batch = scene.find_state(SentBatch, *_sequence_key(batch), header.base_sequence)
        if sent_batch is not None and sent_batch.batch is not None and sent_batch.batch.header.crc == header.crc:
            if code in (0, DUPLICATE):
                sent_batch.acknowledgement = exchange
            elif code in NOT_WRITTEN:
                sent_batch.doubtful_copies = max(0, sent_batch.doubtful_copies - 1)
        if code in (0, DUPLICATE):
            if is_oldest or code == 0:
                order.first_unacknowledged = (header.base_sequence + header.last_offset_delta + 1) % WRAP
            if code == DUPLICATE:
                order.duplicates[header.base_sequence] = exchange
        elif code == TOO_LARGE:
            order.is_split = True
        elif code == UNKNOWN_TOPIC_ID:
            sequences = scene.state(WithoutTopic, header.producer_id, header.producer_epoch, batch.partition).sequences
            if len(sequences) < MAX_REMEMBERED_BATCHES:
                sequences.add(header.base_sequence)
        elif code == UNKNOWN_PRODUCER and (batch.place in without_log_start_offset or header.base_sequence == 0):
            # Kafka's own client retries the batch until a response contains the log start offset. It also retries a
            # batch whose sequence is 0, because a broker accepts this sequence from any producer.
            continue
        elif code in (UNKNOWN_PRODUCER, OUT_OF_ORDER) and is_oldest:
            order.fatal_response = exchange
            scene.state(LastProducer, exchange.connection.number, *batch.place).fatal_response = exchange


def on_issued_epoch(exchange: Exchange, scene: Scene) -> None:
    answer = exchange.answer
    if (
        isinstance(answer, InitProducerIdResponse | EndTxnResponse)
        and answer.error_code == 0
        and answer.producer_id >= 0
    ):
        issued_epochs = scene.state(IssuedEpochs, answer.producer_id)
        issued_epochs.epochs.add(answer.producer_epoch)
        issued_epochs.response = exchange
        scene.join(exchange.connection, "producer", answer.producer_id, answer.producer_epoch)


FAMILY = Family(
    RULES,
    on_request={ApiKey.PRODUCE: (on_produce,)},
    on_response={
        ApiKey.PRODUCE: (on_produce_response,),
        ApiKey.INIT_PRODUCER_ID: (on_issued_epoch,),
        ApiKey.END_TXN: (on_issued_epoch,),
    },
)
