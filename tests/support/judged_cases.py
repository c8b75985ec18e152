"""Builds cases for tests of the judge's rules. Each case has one trace that keeps its rule and one that breaks it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from odradek.protocol.compression import Compression
from odradek.protocol.messages.init_producer_id_request import InitProducerIdRequest
from odradek.protocol.messages.init_producer_id_response import InitProducerIdResponse
from odradek.protocol.messages.join_group_request import JoinGroupRequest
from odradek.protocol.messages.join_group_response import JoinGroupResponse
from odradek.protocol.messages.produce_response import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from odradek.protocol.records import NewRecord, build_batch
from odradek.protocol.schema import ZERO_UUID
from tests.support.requests import produce_request
from tests.support.traces import Peer, Trace

Story: TypeAlias = Callable[[Trace], None]


@dataclass(frozen=True, slots=True)
class Case:
    rule: str
    good: Story
    bad: Story


def told(story: Story) -> Trace:
    trace = Trace()
    story(trace)
    return trace


def batch(
    sequence: int = -1,
    *,
    producer: tuple[int, int] = (-1, -1),
    count: int = 1,
    transactional: bool = False,
    control: bool = False,
    compression: Compression = Compression.NONE,
    value: bytes = b"v",
    timestamp: int = 0,
) -> bytearray:
    records = [NewRecord(key=None, value=value, timestamp=timestamp) for _ in range(count)]
    return build_batch(
        records,
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=sequence,
        is_transactional=transactional,
        is_control=control,
        compression=compression,
    )


def produce(
    peer: Peer,
    records: bytes | bytearray,
    *,
    error: int = 0,
    version: int = 11,
    transactional_id: str | None = None,
    acks: int = -1,
    partition: int = 0,
    lost: bool = False,
    after_ms: float = 100,
    behind: bool = False,
    log_start: int = 0,
    topic_id: bytes = ZERO_UUID,
) -> None:
    """Adds a Produce request with one batch for a partition, and its response with `error`.

    lost  whether the response is lost
    """
    name = "t" if topic_id == ZERO_UUID else ""
    request = produce_request(
        name, records, partition=partition, topic_id=topic_id, transactional_id=transactional_id, acks=acks
    )
    part = PartitionProduceResponse(index=partition, error_code=error, log_start_offset=log_start)
    response = TopicProduceResponse(name=name, topic_id=topic_id, partition_responses=[part])
    answer = ProduceResponse(responses=[response])
    peer.ask(request, version, None if lost else answer, after_ms=after_ms, behind=behind)


def init(peer: Peer, producer: tuple[int, int], transactional_id: str | None = None, *, error: int = 0) -> None:
    request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)
    answer = InitProducerIdResponse(producer_id=producer[0], producer_epoch=producer[1], error_code=error)
    peer.ask(request, 4, answer)


def join(
    peer: Peer,
    member: str = "",
    *,
    given: str = "",
    error: int = 0,
    generation: int = 1,
    group: str = "g",
    reason: str | None = None,
    instance: str | None = None,
    after_ms: float = 100,
    behind: bool = False,
) -> None:
    """Adds a JoinGroup v9 of `member`, and its response with a generation.

    given  member id in the response; by default the id in the request
    """
    request = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=60_000,
        member_id=member,
        group_instance_id=instance,
        protocol_type="consumer",
        protocols=[],
        reason=reason,
    )
    answer = JoinGroupResponse(
        error_code=error, generation_id=generation, member_id=given or member, protocol_name="range", leader="l"
    )
    peer.ask(request, 9, answer, after_ms=after_ms, behind=behind)
