"""Tests that a client can send several requests before it reads a response. No rule assumes that a request is a
reaction to the latest response."""

from __future__ import annotations

import pytest

from odradek.protocol.messages.fetch_request import FetchRequest
from odradek.protocol.messages.fetch_response import FetchResponse
from odradek.protocol.messages.init_producer_id_request import InitProducerIdRequest
from odradek.protocol.messages.init_producer_id_response import InitProducerIdResponse
from odradek.protocol.messages.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from odradek.protocol.messages.list_offsets_response import ListOffsetsResponse
from tests.support.judged_cases import Case, batch, init, join, produce, told
from tests.support.traces import Trace
from tests.unit.testing.judge.rules.cases_of_consumers import fetch
from tests.unit.testing.judge.rules.cases_of_groups import heartbeat
from tests.unit.testing.judge.rules.cases_of_transactions import NAME, NEXT, Producer, acknowledges
from tests.unit.testing.judge.rules.test_rules import CASES

# Rules that a request breaks alone or with earlier requests, whatever the responses are.
BROKEN_WITHOUT_AN_ANSWER = {
    *("VER.1", "VER.4", "VER.5", "VER.6", "VER.9", "CON.5"),
    *("PRD.1", "PRD.2", "PRD.3", "PRD.4"),
    *("IDM.2", "IDM.3", "IDM.4", "IDM.5", "IDM.9", "IDM.10"),
    *("TXN.1", "TXN.2", "TXN.3", "TXN.4", "TXN.12", "TV2.1", "TV2.8"),
    *("GRP.14", "GRP.15", "GRP.19", "848.1", "848.2", "848.13"),
    *("FET.1", "FET.3", "FET.5", "MET.4", "MET.6", "MET.11", "SHR.2", "SHR.4", "SHR.7"),
    *("STG.1", "STG.2", "STG.3", "STG.6", "STG.15"),
    *("STG.20", "STG.21", "STG.22", "STG.23", "STG.29"),
}
# Rules about a response that the client received earlier on another connection.
KNOWN_FROM_ELSEWHERE = {"2PC.2", "SHT.1"}


def named(case: Case) -> str:
    return case.rule


@pytest.mark.parametrize(
    "case", [case for case in CASES if case.rule not in BROKEN_WITHOUT_AN_ANSWER | KNOWN_FROM_ELSEWHERE], ids=named
)
def test_a_client_is_not_blamed_for_a_response_that_it_has_not_read(case: Case) -> None:
    tally = told(case.bad).interleaved().tallies().get(case.rule)
    assert tally is None or tally.broken == 0


def test_the_exceptions_are_exactly_the_rules_broken_without_responses() -> None:
    """Checks that the exceptions are exactly the rules that a case breaks even if each request is sent before the
    previous response on its connection arrives."""
    broken = {
        case.rule
        for case in CASES
        if (tally := told(case.bad).interleaved().tallies().get(case.rule)) is not None and tally.broken
    }
    assert broken == BROKEN_WITHOUT_AN_ANSWER | KNOWN_FROM_ELSEWHERE


@pytest.mark.parametrize(
    ("of_partitions", "of_offsets"), [(51, 0), (0, 51), (51, 51), (16, 51)], ids=["first", "second", "both", "mixed"]
)
@pytest.mark.parametrize("order", ["same", "swapped", "interleaved"])
def test_requests_of_two_apis_are_retried_in_any_order(of_partitions: int, of_offsets: int, order: str) -> None:
    """Checks that two requests in flight together can be retried in any order. kafka-python 3.0.12 sends
    AddPartitionsToTxn and AddOffsetsToTxn together."""
    trace = Trace()
    producer = Producer(trace)
    producer.add_both(of_partitions, of_offsets)
    if order == "interleaved":
        producer.add_both(0, 0)
    for retry in ("partitions", "offsets") if order == "same" else ("offsets", "partitions"):
        if order != "interleaved" and (of_partitions if retry == "partitions" else of_offsets):
            producer.add() if retry == "partitions" else producer.add_offsets()
    producer.send()
    producer.end()
    tallies = trace.tallies()
    assert (tallies["TXN.8"].kept > 0, tallies["TXN.8"].broken) == (True, 0)


def test_one_of_two_requests_that_is_never_retried_is_found_at_the_commit() -> None:
    trace = Trace()
    producer = Producer(trace)
    producer.add_both(51, 51)
    producer.add()
    producer.end()
    assert trace.verdict("TXN.8") == "broken"


def test_an_abort_gives_up_what_was_refused() -> None:
    trace = Trace()
    producer = Producer(trace)
    producer.add_both(51, 51)
    producer.end(False)
    producer.add()
    producer.end()
    assert trace.verdict("TXN.8") == "not exercised"


def test_another_instance_of_a_producer_is_not_blamed_for_responses_to_the_first() -> None:
    trace = Trace()
    first, second = Producer(trace), trace.connect()
    init(second, NEXT, NAME, error=51)
    first.add()
    first.end()
    assert trace.verdict("TXN.8") == "not exercised"


def test_a_producer_that_goes_on_while_its_init_producer_id_is_to_be_retried_is_convicted() -> None:
    trace = Trace()
    producer = Producer(trace)
    init(producer.coordinator, NEXT, NAME, error=51)
    producer.add()
    assert trace.verdict("TXN.8") == "broken"


def test_the_instance_that_was_replaced_may_go_on_until_it_is_fenced() -> None:
    """Checks that neither 2PC.2 nor SHT.1 applies to the old instance, which does not know that it has been
    replaced."""
    trace = Trace()
    old = Producer(trace, 12)
    new = trace.connect()
    request = InitProducerIdRequest(
        transactional_id=NAME, transaction_timeout_ms=1, enable2_pc=True, keep_prepared_txn=True
    )
    answer = InitProducerIdResponse(
        producer_id=7, producer_epoch=1, ongoing_txn_producer_id=7, ongoing_txn_producer_epoch=0
    )
    new.ask(request, 6, answer)
    old.send()
    old.acknowledge()
    assert (trace.verdict("2PC.2"), trace.verdict("SHT.1")) == ("not exercised", "not exercised")
    assert told(acknowledges((7, 5))).verdict("SHT.1") == "broken"


def test_two_members_on_one_connection_follow_their_own_answers() -> None:
    trace = Trace()
    peer = trace.connect()
    join(peer, given="m", error=79)
    join(peer, given="n", error=79, after_ms=1, behind=True)
    join(peer, "m")
    join(peer, "n")
    heartbeat(peer, member="m", error=27)
    heartbeat(peer, member="n", error=22)
    join(peer, "m", generation=2)
    join(peer, "n", generation=2)
    heartbeat(peer, member="m", error=25, generation=2)
    heartbeat(peer, member="n", error=27, generation=2)
    join(peer, "n", generation=3)
    join(peer, given="o", error=79)
    tallies = trace.tallies()
    of_members = {rule: tallies[rule] for rule in ("GRP.1", "GRP.4", "GRP.5", "GRP.20")}
    assert {rule for rule, tally in of_members.items() if tally.broken} == set()
    assert all(tally.kept for tally in of_members.values())


def test_two_fetch_sessions_on_one_connection_count_their_own_epochs() -> None:
    trace = Trace()
    peer = trace.connect()
    for session in (8, 9):
        fetch(peer, session=(0, 0), gives=session)
    for epoch in range(1, 5):
        fetch(peer, session=(8, epoch), gives=8)
        if epoch < 4:
            fetch(peer, session=(9, epoch), gives=9)
    fetch(peer, session=(8, 5), error=70)
    fetch(peer, session=(9, 4), gives=9)
    fetch(peer, session=(0, 0), gives=8)
    assert (trace.verdict("FET.6"), trace.verdict("FET.7")) == ("kept", "kept")
    fetch(peer, session=(9, 7), gives=9)
    assert trace.verdict("FET.6") == "broken"


def test_consumers_of_both_isolation_levels_may_share_a_connection() -> None:
    trace = Trace()
    peer = trace.connect()
    fetch(peer, isolation=1)
    fetch(peer, isolation=0)
    topic = ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])
    for isolation in (0, 1):
        peer.ask(ListOffsetsRequest(isolation_level=isolation, topics=[topic]), 7, ListOffsetsResponse())
    assert trace.verdict("FET.1") == "not exercised"


def test_a_fetch_of_other_partitions_is_no_hurried_retry() -> None:
    trace = Trace()
    peer = trace.connect()
    fetch(peer, session=(0, 0), gives=8)
    fetch(peer, session=(0, 0), gives=9)
    for epoch in range(1, 40):
        fetch(peer, session=(8, epoch), gives=8, partition_error=3, after_ms=60)
        peer.ask(FetchRequest(session_id=9, session_epoch=epoch), 12, FetchResponse(session_id=9), after_ms=1)
    assert trace.verdict("FET.15") == "kept"


def test_a_leader_that_was_right_after_all_needs_no_new_metadata() -> None:
    trace = Trace()
    peer = trace.connect()
    produce(peer, batch(), error=6)
    for _ in range(9):
        produce(peer, batch())
    assert trace.verdict("MET.1") != "broken"
