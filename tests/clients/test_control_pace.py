"""Tests responses sent in pieces because of a rule's `slow_bytes_per_s` or the oddity `cut write`."""

from __future__ import annotations

import time

import pytest

from odradek.broker.control.odd.odd import PERCENT
from odradek.protocol.messages.api_versions_request import ApiVersionsRequest
from odradek.protocol.messages.metadata_request import MetadataRequest
from odradek.protocol.messages.metadata_response import MetadataResponse
from odradek.testing.sync import Cluster, Odradek, Refused
from tests.support.wire import ClosedByBroker, Wire

SLOW = {"match": {"api": "ApiVersions", "client_id": "slow"}, "do": {"slow_bytes_per_s": 20}}
VERSION = 0
PATIENCE_S = 30.0


def whole_answer(kafka: Cluster) -> bytes:
    with Wire(kafka.bootstrap, "fast") as wire:
        wire.send(ApiVersionsRequest(), VERSION)
        return wire.receive_bytes()


class Slow:
    """A client receiving a response."""

    def __init__(self, kafka: Cluster) -> None:
        self.wire = Wire(kafka.bootstrap, "slow")
        self.wire.send(ApiVersionsRequest(), VERSION)
        until_s = time.monotonic() + PATIENCE_S
        while not any(each["answered_ms"] is not None for each in kafka.requests(client_id="slow")):
            assert time.monotonic() < until_s

    def arrived(self, count: int) -> bytes:
        """Returns the next `count` bytes and checks that no more bytes have arrived."""
        found = self.wire.read(count)
        self.wire.set_timeout(0.05)
        with pytest.raises(TimeoutError):
            self.wire.read(1)
        self.wire.set_timeout(PATIENCE_S)
        return found


@pytest.mark.parametrize("at", ["received", "applied", "replying"])
def test_an_answer_leaves_at_the_rate_of_its_rule_by_the_clusters_clock(kafka: Cluster, at: str) -> None:
    answer = whole_answer(kafka)
    framed = len(answer).to_bytes(4) + answer
    kafka.clock.freeze()
    kafka.fault({**SLOW, "at": at})
    slow = Slow(kafka)
    assert slow.arrived(0) == b""
    kafka.clock.advance(1_000)
    assert slow.arrived(20) == framed[:20]
    kafka.clock.advance(500)
    assert slow.arrived(10) == framed[20:30]
    assert whole_answer(kafka) == answer
    kafka.clear_faults()
    kafka.clock.advance(50 * len(framed))
    assert slow.wire.read(len(framed) - 30) == framed[30:]
    assert kafka.requests(client_id="slow")[0]["answer_bytes"] == len(framed)


def test_a_request_behind_a_slow_answer_waits_for_it(kafka: Cluster) -> None:
    kafka.clock.freeze()
    kafka.fault(SLOW)
    slow = Slow(kafka)
    slow.wire.send(MetadataRequest(topics=[]), 12)
    kafka.clock.advance(3_600_000)
    slow.wire.receive(ApiVersionsRequest.API_KEY, VERSION)
    slow.wire.receive(MetadataRequest.API_KEY, 12)


def test_a_connection_that_closes_ends_its_slow_answer(kafka: Cluster) -> None:
    kafka.clock.freeze()
    kafka.fault(SLOW)
    slow = Slow(kafka)
    assert kafka.wait(client="slow")["in_flight"] == 1
    slow.wire.close()
    until_s = time.monotonic() + PATIENCE_S
    while kafka.connections():
        assert time.monotonic() < until_s
    kafka.clock.advance(3_600_000)
    assert whole_answer(kafka)


@pytest.mark.parametrize("ends", ["delete", "restart", "crash"])
def test_a_cluster_ends_while_an_answer_leaves_slowly(odradek: Odradek, ends: str) -> None:
    kafka = odradek.cluster()
    kafka.clock.freeze()
    kafka.fault(SLOW)
    slow = Slow(kafka)
    kafka.clock.advance(500)
    slow.arrived(10)
    getattr(kafka, ends)()
    with pytest.raises((ClosedByBroker, ConnectionResetError)):
        slow.wire.read(1)
    if ends != "delete":
        kafka.delete()


@pytest.mark.parametrize("rate", [0, -1, 1.5, "fast", None, True, 2**31])
def test_a_rate_is_a_whole_number(kafka: Cluster, rate: object) -> None:
    with pytest.raises(Refused, match=r"do\.slow_bytes_per_s"):
        kafka.fault({"do": {"slow_bytes_per_s": rate}})
    with pytest.raises(Refused, match="cannot be used"):
        kafka.fault({"at": "marker", "do": {"slow_bytes_per_s": 1}})


def test_an_answer_that_was_cut_is_kept_whole_and_edited_whole(kafka: Cluster) -> None:
    """Rules act after the oddity, and the recorded exchange contains every byte that the client received."""
    kafka.odd(1, {"cut write": 100, **dict.fromkeys(PERCENT.keys() - {"cut write"}, 0)})
    kafka.fault({"match": {"api": "Metadata"}, "at": "applied", "do": {"edit": {"ThrottleTimeMs": 7}}, "times": 1})
    with Wire(kafka.bootstrap, "cut") as wire:
        for throttle_ms in (7, 0):
            answer = wire.ask(MetadataRequest(topics=[]), 12, MetadataResponse)
            exchange = kafka.requests(client_id="cut")[-1]
            assert exchange["answer"]["throttleTimeMs"] == throttle_ms == answer.throttle_time_ms
            assert exchange["answer"]["brokers"]
    assert {each["name"]: each["done"] for each in kafka.odd()["oddities"]}["cut write"] == 2
