"""Tests that an invalid fault rule is refused with the name of the wrong field, and that a valid rule affects only the
requests that it matches."""

from dataclasses import replace

import pytest

from odradek.broker.control.faults.edits import EditNotApplied, apply_edits
from odradek.broker.control.faults.rule_json import parse_rule, rule_as_json
from odradek.broker.control.faults.rules import Occurrence, Point, Rule
from odradek.broker.control.faults.sightings import named_in, places_in
from odradek.broker.control.problems import Problem
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from odradek.protocol.messages.end_txn_request import EndTxnRequest
from odradek.protocol.messages.end_txn_response import EndTxnResponse
from odradek.protocol.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from odradek.protocol.messages.fetch_response import FetchableTopicResponse, FetchResponse, PartitionData
from odradek.protocol.messages.metadata_response import MetadataResponse, MetadataResponseTopic
from odradek.protocol.messages.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from odradek.protocol.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from odradek.protocol.messages.sync_group_response import SyncGroupResponse
from odradek.protocol.struct import Message

TOPIC_ID = bytes(15) + b"\x01"


def rule(**fields: object) -> Rule:
    return parse_rule({"do": {"observe": True}, **fields}, "r")


def occurrence_of(request: Message, **about: object) -> Occurrence:
    places = places_in(request, {TOPIC_ID: "orders"}.get)
    return Occurrence(ApiKey(request.API_KEY), 0, request, about, named_in(request), places)


@pytest.mark.parametrize(
    ("fields", "field", "words"),
    [
        ({"match": {"api": "EndTx"}}, "match.api", "did you mean EndTxn"),
        ({"match": {"apis": "EndTxn"}}, "match.apis", "did you mean api"),
        ({"at": "recieved"}, "at", "did you mean received"),
        ({"do": {"error": "CONCURRENT_TRANSACTION"}}, "do.error", "did you mean CONCURRENT_TRANSACTIONS"),
        ({"do": {}}, "do", "one of"),
        ({"do": {"edit": {"ErrorCode": 1}}}, "at", "cannot be used at received"),
        ({"do": {"drop": 1}}, "do.drop", "true"),
        (
            {"match": {"api": "EndTxn"}, "at": "applied", "do": {"edit": {"ErrorCod": 1}}},
            "do.edit.ErrorCod",
            "did you mean errorCode",
        ),
        ({"at": "marker", "do": {"disconnect": True}}, "at", "cannot be used at marker"),
        ({"at": "replying", "do": {"error": "NOT_COORDINATOR"}}, "at", "cannot be used at replying"),
        ({"at": "share_state", "do": {"drop": True}}, "at", "cannot be used at share_state"),
        ({"at": "share_state", "match": {"api": "ShareFetch"}}, "match.api", "unknown"),
        ({"at": "marker", "match": {"api": "EndTxn"}}, "match.api", "unknown"),
        ({"times": 0}, "times", "from 1"),
        ({"times": True}, "times", "whole number"),
        ({"match": {"probability": 2}}, "probability", "from 0 to 1"),
        ({"match": {"when": "Epoch == 0", "api": "EndTxn"}}, "match.when", "unknown"),
        ({"match": {"when": "ProducerEpoch == 0"}}, "match.api", "needs match.api"),
        ({"match": {"when": "ProducerEpoch = 0", "api": "EndTxn"}}, "match.when", "a comparison"),
        ({"match": {"when": f"ProducerEpoch == {'[' * 100_000}", "api": "EndTxn"}}, "match.when", "a JSON value"),
        ({"match": {"versions": "x"}}, "match.versions", "3-5"),
        ({"frequency": 1}, "frequency", "unknown"),
        ({"match": {"api": "LeaderAndIsr"}}, "match.api", "unknown"),  # the broker does not support this API
        (
            {"match": {"api": "EndTxn"}, "do": {"error": "NOT_COORDINATOR", "partitions": [0]}},
            "do.partitions",
            "do not have an error for each partition",
        ),
    ],
)
def test_an_invalid_rule_is_refused_with_its_field_and_the_allowed_values(
    fields: dict[str, object], field: str, words: str
) -> None:
    with pytest.raises(Problem, match=words) as refused:
        rule(**fields)
    assert (refused.value.status, refused.value.field) == (400, field)


@pytest.mark.parametrize("body", [None, [], 1, "x"])
def test_a_rule_is_an_object(body: object) -> None:
    with pytest.raises(Problem, match="an object"):
        parse_rule(body, "r")


def test_a_rule_finds_transactional_ids_and_comparisons() -> None:
    commits = rule(match={"api": "EndTxn", "transactional_id": "t", "when": "Committed == true"})
    assert commits.count_match(occurrence_of(EndTxnRequest(transactional_id="t", committed=True)))
    assert not commits.count_match(occurrence_of(EndTxnRequest(transactional_id="t", committed=False)))
    assert not commits.count_match(occurrence_of(EndTxnRequest(transactional_id="u", committed=True)))


def test_a_null_never_satisfies_an_order_comparison() -> None:
    old = rule(match={"api": "ConsumerGroupHeartbeat", "when": "RackId < 3"})
    assert not old.count_match(occurrence_of(ConsumerGroupHeartbeatRequest(rack_id=None)))


def test_a_topic_and_its_partition_are_matched_together() -> None:
    one = rule(match={"topic": "orders", "partition": 1})

    def produce_request(topic: str, index: int) -> ProduceRequest:
        data = [PartitionProduceData(index=index, records=None)]
        other = TopicProduceData(name="other", partition_data=[PartitionProduceData(index=1, records=None)])
        return ProduceRequest(topic_data=[TopicProduceData(name=topic, partition_data=data), other])

    assert one.count_match(occurrence_of(produce_request("orders", 1)))
    assert not one.count_match(occurrence_of(produce_request("orders", 0)))


def test_a_rule_for_single_partitions_requires_a_version_that_answers_each_of_them() -> None:
    do = {"error": "NOT_COORDINATOR", "partitions": [0]}
    topics = [OffsetFetchRequestTopic(name="orders", partition_indexes=[0])]
    old = OffsetFetchRequest(group_id="g", topics=topics)
    groups = [
        OffsetFetchRequestGroup(group_id="g", topics=[OffsetFetchRequestTopics(name="orders", partition_indexes=[0])])
    ]
    grouped = OffsetFetchRequest(groups=groups)
    assert rule(do=do).count_match(replace(occurrence_of(old), version=7))
    # in this version, the partitions are nested below groups
    assert not rule(do=do).count_match(replace(occurrence_of(grouped), version=8))


def test_a_rule_for_a_topic_matches_requests_by_topic_id() -> None:
    request = FetchRequest(topics=[FetchTopic(topic_id=TOPIC_ID, partitions=[FetchPartition(partition=2)])])
    assert rule(match={"topic": "orders", "partition": 2}).count_match(occurrence_of(request))


def test_a_rule_may_match_the_client_id() -> None:
    mine = rule(match={"client_id": "mine"})
    assert mine.count_match(occurrence_of(EndTxnRequest(), client_id="mine"))
    assert not mine.count_match(occurrence_of(EndTxnRequest(), client_id="yours"))


@pytest.mark.parametrize(
    ("counts", "acts_on"),
    [
        ({"times": 2}, [1, 2]),
        ({"after": 3}, [4, 5, 6]),
        ({"every": 3}, [1, 4]),
        ({"after": 1, "every": 2, "times": 2}, [2, 4]),
        ({"probability": 0}, []),
    ],
)
def test_counts_choose_among_those_that_match(counts: dict[str, object], acts_on: list[int]) -> None:
    one = rule(**counts)
    assert [number for number in range(1, 7) if one.count_match(occurrence_of(EndTxnRequest()))] == acts_on
    assert one.hits == len(acts_on)


def test_chance_repeats_with_its_seed() -> None:
    def chosen(seed: int) -> list[bool]:
        one = rule(match={"probability": 0.5, "seed": seed})
        return [one.count_match(occurrence_of(EndTxnRequest())) for _ in range(64)]

    assert chosen(1) == chosen(1) != chosen(2)


def test_versions_are_known_before_the_request_is_decoded() -> None:
    new = rule(match={"api": "EndTxn", "versions": "4+"})
    assert [version for version in range(6) if new.may_match(ApiKey.END_TXN, version)] == [4, 5]
    assert not new.may_match(ApiKey.FETCH, 5)


def test_a_rule_matches_only_its_api_and_versions() -> None:
    request = occurrence_of(EndTxnRequest(transactional_id="t"))
    assert not rule(match={"api": "Produce"}).count_match(request)
    assert not rule(match={"api": "EndTxn", "versions": "1+"}).count_match(request)
    assert rule(match={"api": "EndTxn", "versions": 0}).count_match(request)


def test_an_edit_sets_a_field_of_the_answer() -> None:
    one = rule(match={"api": "EndTxn"}, at="applied", do={"edit": {"ErrorCode": 51}, "throttle_ms": 7})
    answer = EndTxnResponse()
    for edit in one.do.edits:
        edit.apply(answer, type(answer).MAX_VERSION)
    assert (answer.error_code, answer.throttle_time_ms) == (ErrorCode.CONCURRENT_TRANSACTIONS.value, 7)
    assert one.at is Point.APPLIED


@pytest.mark.parametrize(("order", "found"), [([2, 0], "cabd"), ([3, 2, 1, 0], "dcba"), ([1, 9], "bacd")])
def test_an_edit_puts_elements_in_an_order(order: list[int], found: str) -> None:
    one = rule(match={"api": "Metadata"}, at="applied", do={"edit": {"Topics": {"order": order}}})
    answer = MetadataResponse(topics=[MetadataResponseTopic(name=name) for name in "abcd"])
    for edit in one.do.edits:
        edit.apply(answer, type(answer).MAX_VERSION)
    assert "".join(topic.name or "" for topic in answer.topics) == found


def test_an_edit_sets_an_array_and_each_answer_has_its_own() -> None:
    path = "Responses[*].Partitions[*].AbortedTransactions"
    fields = {"match": {"api": "Fetch"}, "at": "applied", "do": {"edit": {path: [{"ProducerId": 7, "FirstOffset": 3}]}}}
    (edit,) = rule(**fields).do.edits
    answers = [FetchResponse(responses=[FetchableTopicResponse(partitions=[PartitionData()])]) for _ in range(2)]
    for answer in answers:
        edit.apply(answer, type(answer).MAX_VERSION)
    one, other = (each.responses[0].partitions[0].aborted_transactions or [] for each in answers)
    assert [(each.producer_id, each.first_offset) for each in one] == [(7, 3)]
    one.clear()
    assert len(other) == 1


@pytest.mark.parametrize(
    ("path", "elements", "field"),
    [
        ("Responses[*].Partitions[*].AbortedTransactions", [{"Producer": 7}], "[0].Producer"),
        ("Responses[*].Partitions[*].AbortedTransactions", [{"ProducerId": [7]}], "[0].ProducerId"),
        ("Responses[*].Partitions[*].AbortedTransactions", [{}, 7], "[1]"),
        ("Responses[*].Partitions[*].Aborted", [], ""),
        ("Responses[*].Partitions[*].ErrorCode", [7], ""),
        ("Responses[0]", [], ""),
    ],
)
def test_an_array_that_no_answer_has_is_refused(path: str, elements: object, field: str) -> None:
    with pytest.raises(Problem) as refused:
        rule(match={"api": "Fetch"}, at="applied", do={"edit": {path: elements}})
    assert refused.value.field == f"do.edit.{path}{field}"


def test_an_edit_corrupts_bytes() -> None:
    one = rule(match={"api": "SyncGroup"}, at="applied", do={"edit": {"Assignment": {"corrupt": True}}})
    answer = SyncGroupResponse(assignment=b"ab")
    for edit in one.do.edits:
        edit.apply(answer, type(answer).MAX_VERSION)
    assert answer.assignment == b"ac"
    answer.assignment = b""
    for edit in one.do.edits:
        with pytest.raises(EditNotApplied, match="there is nothing to corrupt at assignment"):
            edit.apply(answer, type(answer).MAX_VERSION)


TOPICS = [MetadataResponseTopic(name="a"), MetadataResponseTopic(name="b")]


@pytest.mark.parametrize(
    ("api", "edit", "words"),
    [
        ("Metadata", {"Topics[*].Nothing": 1}, "nothing is unknown"),
        ("Metadata", {"Topics[*].ErrorCod": 1}, "did you mean errorCode"),
        ("Metadata", {"topics[*].partitons": []}, "did you mean partitions"),
        ("Metadata", {"Topics[*].Name": 7}, "must be a string"),
        ("Metadata", {"Topics[*].ErrorCode": "3"}, "must be a whole number, int16"),
        ("Metadata", {"Topics[*].ErrorCode": 40_000}, "must be a whole number, int16"),
        ("Metadata", {"Topics[*].ErrorCode": None}, "cannot be null"),
        ("Metadata", {"Topics[*].ErrorCode": True}, "must be a whole number, int16"),
        ("Metadata", {"Topics[*].IsInternal": 1}, "must be true or false"),
        ("Metadata", {"Topics[*].TopicId": "short"}, "uuid in base64"),
        ("Metadata", {"Topics.ErrorCode": 3}, r"such as topics\[0\] or topics\[\*\]"),
        ("Metadata", {"ControllerId[0]": {"remove": True}}, "controllerId, which is not an array"),
        ("Metadata", {"Topics[-1].ErrorCode": 3}, "a path to a field"),
        ("Metadata", {"ControllerId": {"reverse": True}}, "controllerId is not an array"),
        ("Metadata", {"ControllerId": {"corrupt": True}}, "controllerId has the type int32"),
        ("Metadata", {"Topics": 3}, "a list of MetadataResponseTopic"),
        ("Metadata", {"Topics": [{"Nam": "x"}]}, "did you mean name"),
        ("Metadata", {"Topics": [{"Name": 3}]}, "must be a string"),
    ],
)
def test_an_edit_that_no_answer_allows_is_refused(api: str, edit: dict[str, object], words: str) -> None:
    with pytest.raises(Problem, match=words) as refused:
        rule(match={"api": api}, at="applied", do={"edit": edit})
    assert refused.value.status == 400
    assert str(refused.value.field).startswith("do.edit.")


def test_an_edit_of_a_field_that_no_matched_version_has_is_refused() -> None:
    with pytest.raises(Problem, match="none of the versions that the rule matches has the field topicId") as refused:
        rule(match={"api": "Metadata", "versions": "0-9"}, at="applied", do={"edit": {"Topics[0].TopicId": ZERO}})
    assert refused.value.allowed == "versions 10+"
    rule(match={"api": "Metadata", "versions": "9-10"}, at="applied", do={"edit": {"Topics[0].TopicId": ZERO}})


ZERO = "A" * 22


@pytest.mark.parametrize(
    ("edit", "version", "words"),
    [
        ({"Topics[5].ErrorCode": 3}, 12, r"the answer has no topics\[5\]: the array has 2 elements"),
        ({"Topics[0].Partitions[*].ErrorCode": 3}, 12, r"partitions\[\*\]: the array is empty"),
        ({"Topics[2]": {"remove": True}}, 12, r"there is nothing to remove at topics\[2\]: the array has 2 elements"),
        ({"Brokers[*]": {"remove": True}}, 12, r"there is nothing to remove at brokers\[\*\]: the array is empty"),
        ({"Topics[0].TopicId": ZERO}, 9, "version 9 of the answer has no topicId"),
    ],
)
def test_the_error_of_an_edit_names_the_part_that_the_response_lacks(
    edit: dict[str, object], version: int, words: str
) -> None:
    (one,) = rule(match={"api": "Metadata"}, at="applied", do={"edit": edit}).do.edits
    with pytest.raises(EditNotApplied, match=words):
        one.apply(MetadataResponse(topics=list(TOPICS)), version)


@pytest.mark.parametrize(
    "path", ["Topics[0].ErrorCode", "topics[0].errorCode", "topics[0].error_code", "Topics.0.ErrorCode"]
)
def test_a_field_is_understood_in_each_spelling_and_answered_in_one(path: str) -> None:
    match = {"api": "Metadata", "when": ["AllowAutoTopicCreation == true", "allow_auto_topic_creation != false"]}
    one = rule(match=match, at="applied", do={"edit": {path: 3}})
    answer = MetadataResponse(topics=[MetadataResponseTopic(name="a")])
    (edit,) = one.do.edits
    edit.apply(answer, 12)
    assert answer.topics[0].error_code == 3
    report = rule_as_json(one)
    assert report["do"] == {"edit": {"topics[0].errorCode": 3}}
    assert report["match"] == {
        "api": "Metadata",
        "when": ["allowAutoTopicCreation == true", "allowAutoTopicCreation != false"],
    }


def test_a_field_that_an_old_version_lacks_is_left_out_beside_others() -> None:
    both = {"Topics[*].ErrorCode": 3, "Topics[*].TopicId": ZERO}
    alone = rule(match={"api": "Metadata"}, at="applied", do={"edit": {"Topics[*].TopicId": ZERO}})
    answer = MetadataResponse(topics=[MetadataResponseTopic(name="a")])
    apply_edits(rule(match={"api": "Metadata"}, at="applied", do={"edit": both}).do.edits, answer, 9)
    assert answer.topics[0].error_code == 3
    with pytest.raises(EditNotApplied, match="version 9 of the answer has no topicId"):
        apply_edits(alone.do.edits, answer, 9)


def test_a_hit_is_not_counted_if_the_edit_cannot_be_made() -> None:
    one = rule(match={"api": "EndTxn"}, at="applied", do={"edit": {"ErrorCode": 51}}, times=1)
    request = occurrence_of(EndTxnRequest(transactional_id="t"))
    assert one.count_match(request)
    assert not one.count_match(request)
    one.record_failed_edit("the request has no answer")
    report = rule_as_json(one)
    assert (report["hits"], report["unmade"], report["unmade_because"]) == (0, 1, "the request has no answer")
    assert one.count_match(request)


@pytest.mark.parametrize("order", [[], [0, 0], [-1], "0", True, [True]])
def test_an_order_is_a_list_of_indexes(order: object) -> None:
    with pytest.raises(Problem, match=r"do\.edit\.Topics\.order"):
        rule(match={"api": "Metadata"}, at="applied", do={"edit": {"Topics": {"order": order}}})
