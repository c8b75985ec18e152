"""Sends Produce requests as fast as a broker responds, from a C program that itself uses very little CPU time."""

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass

from bench.native import run_load, running_sink
from bench.subjects import Subject
from bench.topics import topic
from odradek.protocol.frames import request_bytes, response_chunks
from odradek.protocol.messages.produce_response import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from odradek.protocol.records import NewRecord, build_batch
from tests.support.requests import produce_request

PRODUCE_VERSION = 9
PARTITIONS = 8
SECONDS = 1.5
# Position of the error code in a response to a request for a topic with an empty name, counted from the end of the
# length. The sum covers correlation id, tags, number of topics, name length, number of partitions, and index. Add the
# length of the topic's name.
ERROR_AT_WITHOUT_NAME = 4 + 1 + 1 + 1 + 1 + 4


@dataclass(frozen=True, slots=True)
class RawLoad:
    """A load of Produce requests with acks=all. Each request has one valid record with a value of `value_bytes`."""

    value_bytes: int
    connections: int
    in_flight: int
    is_synced: bool = False  # sets flush.messages=1, so that each response requires an fdatasync

    def measure(self, subject: Subject, share: float) -> Mapping[str, float]:
        configs = {"flush.messages": "1"} if self.is_synced else {}
        with topic(subject.bootstrap, PARTITIONS, configs) as name:
            return self._run(subject.broker.port, subject.pid, name, SECONDS * share)

    def baseline(self, share: float) -> Mapping[str, float]:
        """Runs the same load against a sink to measure the limits of the load generator and the sockets."""
        name = "bench"
        response = ProduceResponse(
            responses=[TopicProduceResponse(name=name, partition_responses=[PartitionProduceResponse()])]
        )
        with running_sink(b"".join(response_chunks(0, PRODUCE_VERSION, 1, response))) as (port, pid):
            return self._run(port, pid, name, SECONDS * share)

    def _run(self, port: int, pid: int, name: str, seconds: float) -> Mapping[str, float]:
        figures = run_load(
            port,
            b"".join(self._frame(name, number % PARTITIONS) for number in range(self.connections)),
            connections=self.connections,
            in_flight=self.in_flight,
            seconds=seconds,
            warm_up_s=seconds / 3,
            error_at=ERROR_AT_WITHOUT_NAME + len(name),
            pid=pid,
        )
        per_request_us = figures["cores"] / figures["requests_s"] * 1e6
        return {
            **figures,
            "mb_s": figures["requests_s"] * self.value_bytes / 1e6,
            "cpu_us_per_request": per_request_us,
        }

    def _frame(self, name: str, partition: int) -> bytes:
        batch = build_batch([NewRecord(None, os.urandom(self.value_bytes), time.time_ns() // 1_000_000)])
        request = produce_request(name, batch, partition=partition)
        return request_bytes(request, PRODUCE_VERSION, 1, "bench")
