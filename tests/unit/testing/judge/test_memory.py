"""Tests that a judge remembers exchanges without their records."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator

from odradek.protocol.frames import LENGTH_BYTES, request_bytes
from odradek.protocol.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from odradek.protocol.recording import Kind, RecordingEntry
from odradek.protocol.records import NewRecord, build_batch
from odradek.testing.judge.judging import judge
from odradek.testing.judge.verdicts import exchange_json, verdicts

PRODUCERS = 100
RECORD_BYTES = 100_000


def produced() -> Iterator[RecordingEntry]:
    """Yields Produce requests without responses. Each request has a batch from a different producer."""
    for number in range(1, PRODUCERS + 1):
        records = build_batch([NewRecord(None, bytes(RECORD_BYTES), 1)], producer_id=number, producer_epoch=0)
        data = PartitionProduceData(index=0, records=records)
        topics = [TopicProduceData(name="t", partition_data=[data])]
        frame = request_bytes(ProduceRequest(acks=1, timeout_ms=1, topic_data=topics), 9, number, "a-client")
        yield RecordingEntry(Kind.RECEIVED, 1, number, number, frame[LENGTH_BYTES:])
        yield RecordingEntry(Kind.UNANSWERED, 1, number, number)


def test_records_are_not_stored_and_a_proof_has_only_their_size() -> None:
    tracemalloc.start()
    try:
        judging = judge(produced)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < PRODUCERS * RECORD_BYTES / 4
    verdict = verdicts(judging.clients(), ["PRD.4"])[0].verdicts["PRD.4"]
    assert verdict.broken == PRODUCERS  # because acks is not -1
    assert f"'recordsSizeInBytes': {RECORD_BYTES + 72}" in str(exchange_json(verdict.proof[-1]))
