"""Tests every combination of point, action and API that rules allow, with librdkafka and `odradek.client`.

The matrix is built from the tables in `odradek.broker.control.faults.rule_json`, so a new point or action without a row
here fails the test. A rule acts on the first matching request that a client sends during its work, or on the first
matching step. The kind of action determines the expected effect: an error or a closed connection in the exchange, or a
client that waits until the rule lets it continue. While the client waits, the test checks whether the broker has
executed the request. The client waits because of the hold or delay itself, or because a second rule holds its next
attempt. At the end, the client must have done its work exactly once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import pytest

from odradek.broker.control.faults.rule_json import ACTIONS, POINTS_BY_ACTION
from odradek.broker.control.faults.rules import REPLY_POINTS, Point
from odradek.client import sync as own
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from odradek.protocol.messages.find_coordinator_response import FindCoordinatorResponse
from odradek.protocol.messages.init_producer_id_request import InitProducerIdRequest
from odradek.protocol.messages.init_producer_id_response import InitProducerIdResponse
from odradek.protocol.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek.protocol.messages.offset_commit_response import OffsetCommitResponse
from odradek.protocol.messages.offset_fetch_request import OffsetFetchRequest
from odradek.protocol.messages.offset_fetch_response import OffsetFetchResponse
from odradek.testing.sync import Cluster, Odradek
from tests.clients.admin import create_topic
from tests.clients.client_work import CLIENT, CLIENTS, GROUP, PATIENCE_S, TOPIC, TRANSACTIONAL_ID
from tests.clients.speakers import wait_for
from tests.support.wire import Wire

DELAY_MS = 20_000  # less than the transaction timeout and the acquisition lock duration
SLOW_BYTES_PER_S = 100  # At this rate, every matched response takes at least DELAY_MS.
THROTTLE_MS = 7
TIMEOUT_MS = 30_000  # request timeout, longer than any request takes
SHORT_TIMEOUT_MS = 1_000  # request timeout for rules that drop a response, so the client waits in vain
# Number of records in the topic, including markers, after each kind of work.
RECORDS_OF = {"produce": 1, "transact": 2, "consume": 1, "share": 1}


class Api(NamedTuple):
    """An API that a client uses during its work.

    error    an error after which clients retry
    work     key in `CLIENTS` of the work that uses this API
    is_done  returns whether the broker has executed the request; None if the request changes nothing
    """

    name: str
    error: ErrorCode
    work: str
    names_partitions: bool = False
    is_done: Callable[[Cluster], bool] | None = None


class Cell(NamedTuple):
    """A combination of client, point, action, work and API. `api` is None if the point does not concern a request."""

    client: str
    at: Point
    action: Mapping[str, Any]
    work: str
    api: Api | None = None

    @property
    def row(self) -> str:
        return f"{self.client}-{self.api.name if self.api else self.work}-{self.at.value}"

    def __str__(self) -> str:
        shown = "-".join(f"{name}-{value}".lower() for name, value in self.action.items())
        return f"{self.row}-{shown}"


def has_record(kafka: Cluster) -> bool:
    return bool(kafka.wait(topic=TOPIC, log_end_offset=0)["log_end_offset"])


def has_producer(kafka: Cluster) -> bool:
    return transaction(kafka)["state"] is not None


def is_decided(kafka: Cluster) -> bool:
    return transaction(kafka)["state"] in ("PrepareCommit", "CompleteCommit")


def transaction(kafka: Cluster) -> Mapping[str, Any]:
    # There is no state `-`, so this call always times out. The response reports the actual state.
    condition = {"transaction": TRANSACTIONAL_ID, "state": "-", "timeout_ms": 0}
    facts: Mapping[str, Any] = kafka.call("POST", "/wait", condition, also=frozenset({408}))[1]
    return facts


def has_offset(kafka: Cluster) -> bool:
    with Wire(kafka.bootstrap) as wire:
        found = wire.ask(OffsetFetchRequest(group_id=GROUP, topics=None), 7, OffsetFetchResponse)
    return any(each.committed_offset == 1 for topic in found.topics for each in topic.partitions)


APIS = (
    Api("Metadata", ErrorCode.LEADER_NOT_AVAILABLE, "produce"),
    Api("Produce", ErrorCode.NOT_LEADER_OR_FOLLOWER, "produce", True, has_record),
    Api("FindCoordinator", ErrorCode.COORDINATOR_NOT_AVAILABLE, "transact"),
    Api("InitProducerId", ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "transact", False, has_producer),
    Api("EndTxn", ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "transact", False, is_decided),
    Api("ListOffsets", ErrorCode.NOT_LEADER_OR_FOLLOWER, "consume", True),
    Api("Fetch", ErrorCode.NOT_LEADER_OR_FOLLOWER, "consume", True),
    Api("OffsetCommit", ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "consume", True, has_offset),
)
# After a connection has closed, librdkafka 2.16 does not always retry its coordinator lookup within PATIENCE_S.
NOT_ASKED_AGAIN = frozenset({("librdkafka", "FindCoordinator", "disconnect")})
WORK_AT: Mapping[Point, tuple[str, ...]] = {
    Point.ACCEPTED: ("produce",),
    Point.VERIFIED: ("transact",),
    Point.PREPARED: ("transact",),
    Point.MARKER: ("transact",),
    Point.COMPLETED: ("transact",),
    Point.SHARE_STATE: ("share",),
    Point.LOADING: ("transact", "consume"),
}


def forms(name: str, error: ErrorCode) -> list[Mapping[str, Any]]:
    """Returns all variants of the action `name`."""
    rows: Mapping[str, list[Mapping[str, Any]]] = {
        "observe": [{"observe": True}],
        "error": [{"error": error.name}],
        "partitions": [{"error": error.name, "partitions": [0]}],
        "edit": [{"edit": {"ThrottleTimeMs": THROTTLE_MS}}],
        "throttle_ms": [{"throttle_ms": THROTTLE_MS}],
        "disconnect": [{"disconnect": "fin"}, {"disconnect": "rst"}],
        "drop": [{"drop": True}],
        "delay_ms": [{"delay_ms": DELAY_MS}],
        "hold": [{"hold": "held"}],
        "slow_bytes_per_s": [{"slow_bytes_per_s": SLOW_BYTES_PER_S}],
    }
    return rows[name]


def cells() -> Iterator[Cell]:
    for client in CLIENTS:
        for at in Point:
            for name in sorted(each for each in ACTIONS if at in POINTS_BY_ACTION.get(each, frozenset(Point))):
                for api in APIS if at in REPLY_POINTS else ():
                    if (client, api.name, name) in NOT_ASKED_AGAIN:
                        continue
                    if api.names_partitions or name != "partitions":
                        yield from (Cell(client, at, each, api.work, api) for each in forms(name, api.error))
                for work in WORK_AT.get(at, ()):
                    error = ErrorCode.NOT_LEADER_OR_FOLLOWER
                    yield from (Cell(client, at, each, work) for each in forms(name, error))


CELLS = list(cells())
FEW = CELLS[::47]
ROWS = sorted({cell.row for cell in CELLS})
SHARED = {"share_group": GROUP, "topic": TOPIC, "partition": 0, "offset": 0}
BY_CLOCK = frozenset({"delay_ms", "slow_bytes_per_s"})  # These actions never end while the clock is frozen.
AT_A_TIME = 4  # number of cells that run concurrently, each in its own cluster; they mostly wait


@pytest.fixture(scope="module")
def threads() -> Iterator[ThreadPoolExecutor]:
    pool = ThreadPoolExecutor()
    yield pool
    pool.shutdown(wait=False)  # The client of a failed cell may still be retrying.


def check(odradek: Odradek, threads: ThreadPoolExecutor, cell: Cell) -> None:
    with odradek.cluster() as kafka:
        create_topic(kafka.bootstrap, TOPIC, exact=True)
        if cell.work == "consume":
            with own.Producer(bootstrap_servers=kafka.bootstrap, client_id="before") as producer:
                producer.send(TOPIC, b"a", partition=0).result(PATIENCE_S)
        if cell.work == "share":
            kafka.preset("last-delivery", topic=TOPIC, group=GROUP)
        match = {} if cell.api is None else {"api": cell.api.name, "client_id": CLIENT}
        if cell.at is Point.LOADING:
            match = {"topic": write_state(kafka, cell.work)}
        kafka.fault({"name": "first", "match": match, "at": cell.at.value, "do": cell.action, "times": 1})
        if cell.api is not None and not cell.action.keys().isdisjoint({"error", "disconnect", "drop"}):
            kafka.fault({"name": "next", "match": match, "do": {"hold": "held"}, "after": 1, "times": 1})
        if (
            not cell.action.keys().isdisjoint(BY_CLOCK) and cell.work != "share"
        ):  # A share group may make no progress while the cluster's clock is frozen.
            kafka.clock.freeze()
        if cell.at is Point.LOADING:
            kafka.restart()
        timeout_ms = SHORT_TIMEOUT_MS if "drop" in cell.action else TIMEOUT_MS
        working = threads.submit(CLIENTS[cell.client][cell.work], kafka, timeout_ms)
        try:
            kafka.wait(fault="first", timeout_s=PATIENCE_S)
            if cell.api is None:
                look_at_step(kafka, cell, working)
            else:
                look_at_exchange(kafka, cell, cell.api, working)
            working.result(PATIENCE_S)
        finally:
            kafka.clear_faults()
            kafka.clock.resume()
        if cell.work == "transact":
            kafka.wait(transaction=TRANSACTIONAL_ID, state="CompleteCommit", timeout_s=PATIENCE_S)
        if cell.work == "share" and "error" not in cell.action:
            kafka.wait(**SHARED, state="ENDED", timeout_s=PATIENCE_S)
        expected = RECORDS_OF[cell.work]
        assert kafka.wait(topic=TOPIC, last_stable_offset=expected)["log_end_offset"] == expected
        if cell.work == "consume":
            assert has_offset(kafka)


def write_state(kafka: Cluster, work: str) -> str:
    """Makes the coordinator write a record, because a coordinator does not load an empty partition. Returns the
    record's topic."""
    topic = "__transaction_state" if work == "transact" else "__consumer_offsets"
    key_type, key = (1, TRANSACTIONAL_ID) if work == "transact" else (0, GROUP)
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=0)
    commit = OffsetCommitRequest(group_id=key, topics=[OffsetCommitRequestTopic(name=TOPIC, partitions=[partition])])
    begin = InitProducerIdRequest(transactional_id=key, transaction_timeout_ms=DELAY_MS)
    find = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
    with Wire(kafka.bootstrap) as wire:
        wait_for("a coordinator", lambda: not wire.ask(find, 4, FindCoordinatorResponse).coordinators[0].error_code)
        if work == "transact":
            wait_for("a producer id", lambda: not wire.ask(begin, 4, InitProducerIdResponse).error_code)
        else:
            wait_for(
                "an offset",
                lambda: not wire.ask(commit, 8, OffsetCommitResponse).topics[0].partitions[0].error_code,
            )
    return topic


def look_at_exchange(kafka: Cluster, cell: Cell, api: Api, working: Future[None]) -> None:
    """Checks the effects of the rule while it is active, then lets the client continue."""
    action = cell.action
    waits = "delay_ms" in action or "hold" in action
    if not action.keys().isdisjoint({"observe", "throttle_ms", "edit"}):
        working.result(PATIENCE_S)
        throttle_ms = 0 if "observe" in action else THROTTLE_MS
        assert first(kafka, api)["answer"].get("throttleTimeMs", 0) == throttle_ms
        return
    if "slow_bytes_per_s" in action:
        wait_for("an answer on its way", lambda: first(kafka, api)["answered_ms"] is not None)
        assert not working.done()
        release_hold(kafka, action)
        return
    if "delay_ms" not in action:
        kafka.wait(hold="held", timeout_s=PATIENCE_S)
    exchange = first(kafka, api)
    assert (exchange["answered_ms"] is None) == waits
    assert exchange["closed"] == ("disconnect" in action)
    if "error" in action:
        assert api.error.value in codes(exchange["answer"])
    else:
        assert exchange["answer"] is None
    if api.is_done is not None:
        assert api.is_done(kafka) == (cell.at is not Point.RECEIVED)
    release_hold(kafka, action)


def look_at_step(kafka: Cluster, cell: Cell, working: Future[None]) -> None:
    """Like `look_at_exchange`, but for a rule at a step inside the broker, or before a connection is accepted."""
    if cell.at is Point.SHARE_STATE and "observe" not in cell.action:
        if "delay_ms" in cell.action:
            kafka.clock.freeze()
        condition = {**SHARED, "state": "-", "timeout_ms": 0}
        assert kafka.call("POST", "/wait", condition, also=frozenset({408}))[1]["state"] != "ENDED"
    if cell.action.keys().isdisjoint({"delay_ms", "hold"}):
        return
    if cell.at is Point.LOADING:
        answers = "InitProducerId" if cell.work == "transact" else "OffsetCommit"
        assert all(not done(each["answer"]) for each in kafka.requests(api=answers, client_id=CLIENT))
        assert not working.done()
    elif cell.at is Point.VERIFIED:
        kafka.wait(fault="first", hits=1, timeout_s=PATIENCE_S)
        kafka.wait(transaction=TRANSACTIONAL_ID, state="Ongoing", timeout_s=PATIENCE_S)
        assert kafka.wait(topic=TOPIC, last_stable_offset=0)["log_end_offset"] == 0
    elif cell.at is not Point.SHARE_STATE:
        kafka.wait(transaction=TRANSACTIONAL_ID, state="PrepareCommit", timeout_s=PATIENCE_S)
        written = 2 if cell.at is Point.COMPLETED else 1
        assert kafka.wait(topic=TOPIC, last_stable_offset=0)["log_end_offset"] == written
    release_hold(kafka, cell.action)


def release_hold(kafka: Cluster, action: Mapping[str, Any]) -> None:
    if not action.keys().isdisjoint(BY_CLOCK):
        kafka.clock.advance(DELAY_MS)
        kafka.clock.resume()
    else:
        assert kafka.release("held") >= 1


def first(kafka: Cluster, api: Api) -> Mapping[str, Any]:
    return kafka.requests(api=api.name, client_id=CLIENT)[0]


def done(answer: object) -> bool:
    return answer is not None and codes(answer) == {0}


def codes(answer: object) -> set[int]:
    """Returns all error codes of a response."""
    if isinstance(answer, list):
        return {code for each in answer for code in codes(each)}
    if not isinstance(answer, dict):
        return set()
    own_code = {answer["errorCode"]} if "errorCode" in answer else set()
    return own_code | codes(list(answer.values()))


@pytest.mark.parametrize("cell", FEW, ids=str)
def test_a_rule_does_what_its_action_says(odradek: Odradek, threads: ThreadPoolExecutor, cell: Cell) -> None:
    check(odradek, threads, cell)


@pytest.mark.slow
@pytest.mark.parametrize("row", ROWS)
def test_every_rule_does_what_its_action_says(odradek: Odradek, threads: ThreadPoolExecutor, row: str) -> None:
    failed = []
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        checks = [(cell, pool.submit(check, odradek, threads, cell)) for cell in CELLS if cell.row == row]
        for cell, checked in checks:
            error = checked.exception()
            if error is not None:
                error.add_note(str(cell))
                failed.append(error)
    if failed:
        raise BaseExceptionGroup(row, failed)


def test_every_action_stands_at_every_point_where_it_has_a_meaning() -> None:
    for client in CLIENTS:
        there = {(cell.at, name) for cell in CELLS if cell.client == client for name in cell.action}
        assert there == {
            (at, name) for at in Point for name in ACTIONS if at in POINTS_BY_ACTION.get(name, frozenset(Point))
        }
