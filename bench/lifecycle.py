"""Measures the start-up time, the resources used by an idle broker, and the cost of many topics."""

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from threading import Thread

from bench.process_usage import KIB, MIB
from bench.subjects import Subject
from bench.topics import create, wait_until_led
from odradek.protocol.messages.api_versions_request import ApiVersionsRequest
from odradek.protocol.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from odradek.protocol.messages.produce_response import ProduceResponse
from odradek.protocol.records import NewRecord, build_batch
from tests.support.broker_process import Broker
from tests.support.requests import produce_request
from tests.support.reserved_port import ReservedPort
from tests.support.wire import ClosedByBroker, Wire

START_TIMEOUT_S = 120.0
PRODUCE_VERSION = 9
API_VERSIONS_VERSION = 3
TOPICS = 1000
CONNECTIONS = 2000
FIRST_TOPIC = "first"


_reserved: list[ReservedPort] = []  # the ports remain reserved until the run ends


def free_port() -> int:
    """Returns a port that the kernel does not assign to outgoing connections.

    While no process is listening on an ordinary port, the kernel can assign that port to a client that keeps trying to
    connect to it. The client would then be connected to itself, and the broker could not bind the port.
    """
    _reserved.append(ReservedPort())
    return _reserved[-1].number


def started(broker: Broker) -> tuple[Wire, Thread]:
    """Starts the broker. Returns the first accepted connection and the thread that runs `broker.start`."""
    starting = Thread(target=broker.start)
    starting.start()
    return _connected(broker, starting), starting


def _connected(broker: Broker, starting: Thread) -> Wire:
    """Returns a connection to a broker that is starting. Raises RuntimeError if the broker exits or does not start in
    time."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while True:
        try:
            return Wire(f"127.0.0.1:{broker.port}")
        except ConnectionRefusedError:
            if time.monotonic() > deadline or not (starting.is_alive() or broker.is_running()):
                starting.join()
                raise RuntimeError(f"the broker ended, or did not listen within {START_TIMEOUT_S:g} s") from None
            time.sleep(0.001)


def first_produce(subject: Subject, share: float) -> Mapping[str, float]:
    """Measures the time from the start of the process to the first acknowledged record.

    An earlier start has formatted the directory and created the topic, because a separate row measures topic creation.
    """
    broker = subject.fresh(free_port())
    broker.start()
    with Wire(broker.bootstrap) as wire:
        create(wire, [FIRST_TOPIC])
        wait_until_led(wire, [FIRST_TOPIC])
    broker.stop()
    batch = build_batch([NewRecord(None, b"first", time.time_ns() // 1_000_000)])
    request = produce_request(FIRST_TOPIC, batch)
    begun = time.perf_counter()
    wire, starting = started(broker)
    with wire:
        while not _is_written(wire.ask(request, PRODUCE_VERSION, ProduceResponse)):
            time.sleep(0.001)
    took_s = time.perf_counter() - begun
    starting.join()
    subject.discard(broker)
    return {"ms": took_s * 1000}


def _is_written(answer: ProduceResponse) -> bool:
    return answer.responses[0].partition_responses[0].error_code == 0


def idle(subject: Subject, share: float) -> Mapping[str, float]:
    """Measures the memory and CPU time of a broker that has no clients."""
    subject.rss_bytes()
    time.sleep(2)  # gives the broker time to finish its start-up work
    seconds = max(1.0, 4 * share)
    cpu_before = subject.cpu_seconds()
    time.sleep(seconds)
    return {
        "rss_mib": subject.rss_bytes() / MIB,
        "cpu_percent": (subject.cpu_seconds() - cpu_before) / seconds * 100,
    }


def memory(subject: Subject, share: float) -> Mapping[str, float]:
    """Returns the broker's current memory usage. This row runs after the rows that put load on the broker."""
    return {"rss_mib": subject.rss_bytes() / MIB}


def idle_connections(subject: Subject, share: float) -> Mapping[str, float]:
    """Measures the memory per idle connection. Each connection has only sent ApiVersions, as every client does
    first."""
    count = int(CONNECTIONS * share)
    with ExitStack() as stack:
        stack.enter_context(_greeted(subject))
        before = subject.rss_bytes()
        for _ in range(count):
            stack.enter_context(_greeted(subject))
        return {"kib": (subject.rss_bytes() - before) / count / KIB}


def _greeted(subject: Subject) -> Wire:
    wire = Wire(subject.bootstrap)
    request = ApiVersionsRequest(client_software_name="bench", client_software_version="1")
    wire.ask(request, API_VERSIONS_VERSION)
    return wire


def many_topics(subject: Subject, share: float) -> Mapping[str, float]:
    """Creates 1,000 topics with one partition each in a single request, and measures the time until all partitions have
    leaders. Measures this time again after a clean restart and after a kill."""
    names = [f"topic-{number}" for number in range(int(TOPICS * share))]
    broker = subject.fresh(free_port())
    broker.start()
    figures: dict[str, float] = {}
    with Wire(broker.bootstrap) as wire:
        begun = time.perf_counter()
        create(wire, names)
        wait_until_led(wire, names)
        figures["create_s"] = time.perf_counter() - begun
        _write_to_each(wire, names)
    broker.stop()
    figures["clean_s"] = until_led(broker, names)
    with Wire(broker.bootstrap) as wire:
        _write_to_each(wire, names)
    broker.kill9()
    figures["killed_s"] = until_led(broker, names)
    subject.discard(broker)
    return figures


def until_led(broker: Broker, names: Sequence[str], timeout_s: float = START_TIMEOUT_S) -> float:
    """Starts the broker and returns the seconds until all topics have leaders.

    Raises RuntimeError if the broker exits or does not start in time.
    """
    begun = time.perf_counter()
    wire, starting = started(broker)
    while True:
        with wire:
            try:
                wait_until_led(wire, names)
                break
            except ClosedByBroker:  # The broker accepts connections but does not process requests yet.
                pass
        if time.perf_counter() - begun > timeout_s:
            raise RuntimeError(f"the broker still closes connections {timeout_s:g} s after its start")
        time.sleep(0.001)
        wire = _connected(broker, starting)  # The closed connection cannot be used again.
    took_s = time.perf_counter() - begun
    starting.join()
    return took_s


def _write_to_each(wire: Wire, names: list[str]) -> None:
    """Writes one record to each topic, so that a restarted broker has something to recover."""
    batch = build_batch([NewRecord(None, b"x" * 100, time.time_ns() // 1_000_000)])
    topics = [
        TopicProduceData(name=name, partition_data=[PartitionProduceData(index=0, records=batch)]) for name in names
    ]
    request = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=topics)
    answer = wire.ask(request, PRODUCE_VERSION, ProduceResponse)
    codes = {partition.error_code for topic in answer.responses for partition in topic.partition_responses}
    if codes != {0}:
        raise RuntimeError(f"Produce failed with errors {codes}")
