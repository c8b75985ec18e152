"""Rules PRD, about the batches in Produce requests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from odradek.protocol.api_keys import ApiKey
from odradek.protocol.batch_header import MAGIC
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.produce_request import ProduceRequest
from odradek.protocol.messages.produce_response import ProduceResponse
from odradek.testing.judge.exchanges import Batch, Exchange, knows_response
from odradek.testing.judge.rule import Family, M, ProtocolRule, S, undecided
from odradek.testing.judge.scene import Scene
from odradek.testing.judge.topics import Topic

ZSTD: Final = 4
FIRST_VERSION_WITH_ZSTD: Final = 7
COMPRESSION: Final = 7
MAX_REPEATS: Final = 3

# fmt: off
RULES = (
    ProtocolRule("PRD.1", M, "Each partition has one record batch of version 2, with a valid CRC and consistent counts",
        "a Produce"),
    ProtocolRule("PRD.2", M,
        "Batches are compressed with zstd only in Produce v7 and later", "a batch that is compressed with zstd"),
    ProtocolRule("PRD.3", M,
        "No batch has the control bit; a batch has the transactional bit if and only if it is part of a transaction",
        "a Produce"),
    ProtocolRule("PRD.4", M, "A batch with a producer id is sent with acks=-1", "a batch with a producer id"),
    ProtocolRule("PRD.5", S, "The client does not keep sending a batch after MESSAGE_TOO_LARGE",
        "a batch that was refused with MESSAGE_TOO_LARGE"),
    undecided("PRD.6", S, "Without idempotence, records of a partition stay in order if one request is in flight",
        "a driver: traffic does not show how many requests the application allows in flight"),
    undecided("PRD.7", S,
        "The client retries KAFKA_STORAGE_ERROR, NOT_ENOUGH_REPLICAS and REQUEST_TIMED_OUT until the delivery timeout",
        "a driver: traffic does not show the delivery timeout"),
)
# fmt: on


@dataclass(slots=True)
class TooLargeBatch:
    """A batch that the broker rejected as too large. This state's key contains the batch's CRC."""

    refusal: Exchange | None = None
    repetitions: int = 0


def on_produce(exchange: Exchange, scene: Scene) -> None:
    request = exchange.request
    assert isinstance(request, ProduceRequest)
    partitions = sum(len(topic.partition_data) for topic in request.topic_data)
    if len(exchange.batches) < partitions:
        scene.record_broken("PRD.1", exchange, "a partition has no readable record batch")
    for batch in exchange.batches:
        header = batch.header
        scene.decide(
            "PRD.1", (why := _batch_violation(batch)) is None, exchange, f"{batch.topic}-{batch.partition}: {why}"
        )
        if header.attributes & COMPRESSION == ZSTD:
            scene.decide(
                "PRD.2",
                exchange.version >= FIRST_VERSION_WITH_ZSTD,
                exchange,
                f"a batch is compressed with zstd in Produce v{exchange.version}",
            )
        is_transactional = request.transactional_id is not None
        is_fine = not header.is_control and header.is_transactional == is_transactional
        bits = f"control {header.is_control}, transactional {header.is_transactional}"
        scene.decide("PRD.3", is_fine, exchange, f"{bits}, with transactional id {request.transactional_id!r}")
        if header.has_producer_id:
            scene.decide("PRD.4", request.acks == -1, exchange, f"acks is {request.acks}")
        repeated = scene.find_state(TooLargeBatch, exchange.connection.similarity, *batch.place, header.crc)
        if repeated is not None and repeated.refusal is not None and knows_response(exchange, repeated.refusal):
            repeated.repetitions += 1
            if repeated.repetitions > MAX_REPEATS:
                scene.record_broken(
                    "PRD.5", exchange, f"the batch was sent again {repeated.repetitions} times", repeated.refusal
                )


def _batch_violation(batch: Batch) -> str | None:
    header = batch.header
    if header.magic != MAGIC:
        return f"magic {header.magic}"
    if not batch.is_alone:
        return "the records contain more than one batch"
    if not batch.is_sound:
        return "the CRC or the length of the batch is wrong"
    if header.record_count != header.last_offset_delta + 1 or header.record_count < 1:
        return f"the batch has {header.record_count} records, but a last offset delta of {header.last_offset_delta}"
    return None


def on_produce_response(exchange: Exchange, scene: Scene) -> None:
    errors = partition_errors(exchange)
    for batch in exchange.batches:
        if errors.get(batch.place) == ErrorCode.MESSAGE_TOO_LARGE.value:
            repeated = scene.state(TooLargeBatch, exchange.connection.similarity, *batch.place, batch.header.crc)
            repeated.refusal = exchange
            if repeated.repetitions <= MAX_REPEATS:
                scene.record_kept("PRD.5", exchange)


def partition_errors(exchange: Exchange) -> dict[tuple[Topic, int], int]:
    """Returns the error codes in a Produce response, keyed by topic and partition."""
    if not isinstance(exchange.answer, ProduceResponse):
        return {}
    return {
        (exchange.topic(topic.name, topic.topic_id), partition.index): partition.error_code
        for topic in exchange.answer.responses
        for partition in topic.partition_responses
    }


def partitions_without_log_start(exchange: Exchange) -> set[tuple[Topic, int]]:
    """Returns the partitions whose log start offset is missing from a Produce response."""
    if not isinstance(exchange.answer, ProduceResponse):
        return set()
    return {
        (exchange.topic(topic.name, topic.topic_id), partition.index)
        for topic in exchange.answer.responses
        for partition in topic.partition_responses
        if partition.log_start_offset < 0
    }


FAMILY = Family(RULES, on_request={ApiKey.PRODUCE: (on_produce,)}, on_response={ApiKey.PRODUCE: (on_produce_response,)})
