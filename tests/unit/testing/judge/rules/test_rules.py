"""Tests each rule with a trace that keeps it, a trace that breaks it, and a trace that does not exercise it. The tests
also cover corner cases of some rules."""

import pytest

from odradek.protocol.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from odradek.protocol.messages.consumer_group_heartbeat_response import ConsumerGroupHeartbeatResponse
from odradek.protocol.messages.delete_topics_request import DeleteTopicsRequest
from odradek.protocol.messages.delete_topics_response import DeletableTopicResult, DeleteTopicsResponse
from odradek.protocol.messages.list_groups_request import ListGroupsRequest
from odradek.protocol.messages.list_groups_response import ListGroupsResponse
from odradek.protocol.messages.metadata_request import MetadataRequest
from odradek.protocol.messages.metadata_response import MetadataResponse, MetadataResponseTopic
from odradek.testing.judge.rules import RULES
from odradek.testing.judge.rules.groups import is_early
from tests.support.judged_cases import Case, Story, batch, init, produce, told
from tests.support.traces import Trace
from tests.unit.testing.judge.rules import (
    cases_of_consumers,
    cases_of_groups,
    cases_of_produce,
    cases_of_streams,
    cases_of_transactions,
)

CASES = (
    *cases_of_produce.CASES,
    *cases_of_transactions.CASES,
    *cases_of_groups.CASES,
    *cases_of_consumers.CASES,
    *cases_of_streams.CASES,
)
OF_EVERY_REQUEST = {"VER.1", "VER.5", "VER.9"}


def named(case: Case) -> str:
    return case.rule


@pytest.mark.parametrize("case", CASES, ids=named)
def test_a_client_that_keeps_the_rule_is_not_accused(case: Case) -> None:
    tally = told(case.good).tallies().get(case.rule)
    assert tally is not None
    assert (tally.kept > 0, tally.broken, tally.first) == (True, 0, None)


@pytest.mark.parametrize("case", CASES, ids=named)
def test_a_client_that_breaks_the_rule_is_convicted(case: Case) -> None:
    trace = told(case.bad)
    tally = trace.tallies().get(case.rule)
    assert tally is not None
    assert tally.broken > 0
    assert tally.first is not None
    assert tally.first.why
    numbers = [exchange.number for exchange in tally.first.proof]
    assert numbers == sorted(numbers)


def test_a_rule_that_was_not_exercised_has_no_verdict() -> None:
    trace = Trace()
    trace.connect().ask(ListGroupsRequest(), 4, ListGroupsResponse())
    assert set(trace.tallies()) == OF_EVERY_REQUEST


def test_a_client_need_not_wait_if_the_broker_throttles_by_itself() -> None:
    """Checks that CON.2 does not apply to versions for which the broker itself delays its response. Nor does it apply
    to APIs introduced after KIP-219, because Kafka's own clients do not wait after their responses."""
    assert told(cases_of_produce.throttled(100, version=5)).verdict("CON.2") == "not exercised"
    trace = Trace()
    peer = trace.connect()
    for _ in range(2):
        peer.ask(ConsumerGroupHeartbeatRequest(), 1, ConsumerGroupHeartbeatResponse(throttle_time_ms=500))
    assert trace.verdict("CON.2") == "not exercised"


@pytest.mark.parametrize(("sequence", "verdict"), [(1, "kept"), (2, "broken")])
def test_a_retry_keeps_its_sequence_where_its_topic_was_created_again(sequence: int, verdict: str) -> None:
    """Checks that IDM.1 requires the same sequence from a retry after its topic was recreated. The Java producer 4.3.1
    sends such a retry."""
    trace = Trace()
    peer, producer = trace.connect(), (7, 0)
    init(peer, producer)
    produce(peer, batch(0, producer=producer), version=13, topic_id=b"1" * 16)
    produce(peer, batch(1, producer=producer), version=13, topic_id=b"1" * 16, error=100)
    produce(peer, batch(sequence, producer=producer), version=13, topic_id=b"2" * 16)
    assert trace.verdict("IDM.1") == verdict


def test_a_member_whose_epoch_is_stale_may_ask_for_it_at_once() -> None:
    assert told(cases_of_groups.asks_for_its_epoch(is_refused=True)).verdict("848.4") == "not exercised"


def test_a_member_of_a_streams_group_whose_epoch_is_stale_may_ask_for_it_at_once() -> None:
    assert told(cases_of_streams.asks_for_its_epoch).verdict("STG.14") == "not exercised"


@pytest.mark.parametrize(
    ("interval_ms", "passed_ms", "early"),
    [
        (5_000, 4_000, False),
        (5_000, 3_999, True),
        (200, 130, False),  # a busy machine may have delayed the previous heartbeat
        (200, 99, True),
        (100, 0, False),
    ],
)
def test_a_heartbeat_is_early_only_if_delays_cannot_explain_it(interval_ms: int, passed_ms: int, early: bool) -> None:
    assert is_early(passed_ms * 1_000, interval_ms * 1_000) is early


@pytest.mark.parametrize(
    ("rule", "story"),
    [
        ("848.4", cases_of_groups.then_beats(after_ms=3_900)),
        ("STG.14", cases_of_streams.joined_and_sends(cases_of_streams.beat(3), after_ms=3_900)),
    ],
)
def test_a_heartbeat_is_not_early_if_the_broker_may_have_read_the_one_before_it_late(rule: str, story: Story) -> None:
    trace = told(story)
    assert trace.verdict(rule) == "broken"
    for entry in trace.entries:
        entry.waited_us = 200_000
    assert trace.verdict(rule) == "kept"


def test_offsets_of_tasks_may_come_with_each_report_of_tasks() -> None:
    """Checks that any report of tasks can contain offsets, because Kafka Streams 4.4.0 sends offsets with each
    report."""
    story = cases_of_streams.holds_tasks_and_sends(cases_of_streams.offsets(), cases_of_streams.reports_with_offsets(0))
    assert told(story).verdict("STG.27") == "not exercised"


def test_every_rule_that_traffic_decides_has_its_cases() -> None:
    decided = {rule.id for rule in RULES.values() if rule.needs is None}
    assert {case.rule for case in CASES} == decided


def test_every_rule_says_when_it_is_decided_or_why_it_is_not() -> None:
    assert [rule.id for rule in RULES.values() if bool(rule.when) == bool(rule.needs)] == []


def test_a_client_that_followed_before_it_is_held_to_know_is_not_accused_later() -> None:
    """Checks that a client that uses its new member id earlier than the judge expects breaks no rule except VER.1,
    because this trace contains no ApiVersions request."""
    tallies = told(cases_of_groups.given_an_id_at_once("")).tallies()
    assert {rule: tally.first for rule, tally in tallies.items() if tally.broken} == {"VER.1": tallies["VER.1"].first}


@pytest.mark.parametrize("error", [10, 45, 87])
def test_a_sequence_whose_batch_was_refused_is_free_for_other_records(error: int) -> None:
    """Checks that a refused batch frees its sequence. In this case, the Java producer lowers the sequences of later
    batches."""
    tallies = told(cases_of_produce.sends_again(b"other", error=error)).tallies()
    assert [rule for rule in ("IDM.1", "IDM.2", "IDM.3", "IDM.5") if rule in tallies and tallies[rule].broken] == []


def test_other_records_after_a_lost_answer_are_no_acknowledged_sequence() -> None:
    """Checks that only IDM.3 is broken, because the client does not know whether the first batch was appended."""
    tallies = told(cases_of_produce.sends_again(b"other")).tallies()
    assert (tallies["IDM.2"].broken, tallies["IDM.3"].broken) == (0, 1)


def test_a_restart_of_sequences_is_found_in_a_recording_without_records() -> None:
    trace = told(cases_of_produce.begins_again(b"b0"))
    for entry in trace.entries:
        entry.lacks_records = True
    assert (trace.verdict("IDM.2"), trace.verdict("IDM.3")) == ("broken", "broken")
    retried = told(cases_of_produce.sends_again(b"second", timestamp=99))
    for entry in retried.entries:
        entry.lacks_records = True
    assert retried.verdict("IDM.3") == "kept"


@pytest.mark.parametrize("is_told_by", ["DeleteTopics", "Metadata"])
@pytest.mark.parametrize("begins_with", [0, 3])
def test_a_topic_that_was_made_again_has_new_sequences(is_told_by: str, begins_with: int) -> None:
    trace = Trace()
    peer, admin = trace.connect(), trace.connect()
    init(peer, (7, 0))
    for round_ in range(2):
        for sequence in range(3):
            first = begins_with if round_ else 0
            produce(peer, batch(first + sequence, producer=(7, 0), value=b"%d-%d" % (round_, sequence)))
            if is_told_by == "Metadata":
                topic = MetadataResponseTopic(name="t", topic_id=bytes([round_ + 1]) * 16)
                admin.ask(MetadataRequest(topics=[]), 12, MetadataResponse(topics=[topic]))
        if is_told_by == "DeleteTopics":
            deleted = DeleteTopicsResponse(responses=[DeletableTopicResult(name="t")])
            admin.ask(DeleteTopicsRequest(topic_names=["t"]), 5, deleted)
        elif not round_:
            topic = MetadataResponseTopic(name="t", topic_id=b"\2" * 16)
            admin.ask(MetadataRequest(topics=[]), 12, MetadataResponse(topics=[topic]))
    tallies = trace.tallies()
    assert [rule for rule in ("IDM.1", "IDM.2", "IDM.3") if rule in tallies and tallies[rule].broken] == []


@pytest.mark.parametrize(("sequence", "log_start"), [(1, -1), (0, 0)])
def test_an_unknown_producer_id_is_asked_again_as_kafkas_own_client_does(sequence: int, log_start: int) -> None:
    """Checks that IDM.6 does not apply to a retry after an error without a log start offset, or after an error for the
    producer's first batch."""
    trace = Trace()
    peer = trace.connect()
    init(peer, (7, 0))
    for before in range(sequence):
        produce(peer, batch(before, producer=(7, 0)))
    produce(peer, batch(sequence, producer=(7, 0)), error=59, log_start=log_start)
    produce(peer, batch(sequence, producer=(7, 0)))
    assert trace.verdict("IDM.6") == "not exercised"
