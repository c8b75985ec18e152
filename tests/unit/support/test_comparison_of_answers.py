"""Tests that the differential run compares every value that can be compared and ignores only the others."""

import time

from odradek.protocol.messages.fetch_response import FetchableTopicResponse, FetchResponse, PartitionData
from odradek.protocol.messages.join_group_response import JoinGroupResponse
from odradek.protocol.messages.list_groups_response import ListedGroup, ListGroupsResponse
from odradek.protocol.messages.produce_response import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from odradek.protocol.records import NewRecord, build_batch
from odradek.protocol.struct import Message
from tests.conformance.differential.conversation import Namer, Place, Trace, Value, differences
from tests.conformance.differential.differences import AllowedDifference

PLACE = Place("localhost:9092", "/data", "a-cluster")
NOW_MS = int(time.time() * 1000)
UUIDS = ("01234567-89ab-cdef-0123-456789abcdef", "fedcba98-7654-3210-fedc-ba9876543210")


def trace(*answers: Message) -> Trace:
    namer = Namer(PLACE)
    return [(str(place), namer.flatten(answer)) for place, answer in enumerate(answers)]


def differing(one: Message, other: Message) -> list[tuple[str, Value, Value]]:
    return [found[1:] for found in differences(trace(one), trace(other))]


def produced(**fields: int) -> ProduceResponse:
    return ProduceResponse(
        responses=[TopicProduceResponse(name="t", partition_responses=[PartitionProduceResponse(**fields)])]  # type: ignore[arg-type]
    )


def fetched(topic_id: bytes, records: bytes | bytearray) -> FetchResponse:
    return FetchResponse(
        responses=[FetchableTopicResponse(topic_id=topic_id, partitions=[PartitionData(records=records)])]
    )


def test_every_field_counts() -> None:
    assert differing(produced(base_offset=1), produced(base_offset=1)) == []
    assert differing(produced(base_offset=1, error_code=3), produced(base_offset=2, error_code=3)) == [
        ("responses[t].partition_responses[0].base_offset", 1, 2)
    ]


def test_times_of_now_are_alike_and_others_are_not() -> None:
    assert differing(produced(log_append_time_ms=NOW_MS), produced(log_append_time_ms=NOW_MS - 900)) == []
    assert len(differing(produced(log_append_time_ms=NOW_MS), produced(log_append_time_ms=-1))) == 1
    assert len(differing(produced(log_append_time_ms=5), produced(log_append_time_ms=6))) == 1


def test_ids_are_named_in_the_order_in_which_they_appear() -> None:
    a, b, c = (bytes([n] * 16) for n in (1, 2, 3))
    batch = build_batch([NewRecord(b"k", b"v", 1)])
    first, second, third = fetched(a, batch), fetched(b, batch), fetched(c, batch)
    assert differences(trace(first, second, first), trace(third, first, third)) == []
    assert differences(trace(first, second, first), trace(first, second, second)) != []


def test_member_ids_are_alike_where_their_beginnings_are() -> None:
    one, other = (JoinGroupResponse(member_id=f"client-{uuid}", leader=f"client-{uuid}") for uuid in UUIDS)
    assert differing(one, other) == []
    assert differing(one, JoinGroupResponse(member_id=f"other-{UUIDS[0]}", leader=f"other-{UUIDS[0]}")) != []
    assert differing(one, JoinGroupResponse(member_id=f"client-{UUIDS[0]}", leader=f"client-{UUIDS[1]}")) != []


def test_records_are_compared_one_by_one_and_batches_by_their_fields() -> None:
    base = build_batch([NewRecord(b"k", b"v", 1)])
    assert differing(fetched(bytes(16), base), fetched(bytes(16), build_batch([NewRecord(b"k", b"w", 1)]))) != []
    sequenced = build_batch([NewRecord(b"k", b"v", 1)], producer_id=4, producer_epoch=0, base_sequence=7)
    paths = {path.rpartition(".")[2] for path, *_ in differing(fetched(bytes(16), base), fetched(bytes(16), sequenced))}
    assert paths == {"producer_id", "producer_epoch", "base_sequence"}


def test_the_order_of_a_list_does_not_count_but_its_length_does() -> None:
    a, b = ListedGroup(group_id="a"), ListedGroup(group_id="b")
    assert differing(ListGroupsResponse(groups=[a, b]), ListGroupsResponse(groups=[b, a])) == []
    assert differing(ListGroupsResponse(groups=[a]), ListGroupsResponse(groups=[a, a])) != []


def test_a_talk_that_takes_another_course_is_a_difference() -> None:
    assert differences([("a", {})], [("b", {})]) != []
    assert differences([("a", {}), ("b", {})], [("a", {})]) != []


def test_an_allowed_difference_covers_its_request_path_and_values_only() -> None:
    allowed = AllowedDifference("because", asked="x: *", path="topics[*].error_message", kafka="yes", ours=r"\d+")
    assert allowed.covers("x: Fetch v1", "topics[t].error_message", "yes", 12)
    assert not allowed.covers("y: Fetch v1", "topics[t].error_message", "yes", 12)
    assert not allowed.covers("x: Fetch v1", "topics[t].error_code", "yes", 12)
    assert not allowed.covers("x: Fetch v1", "topics[t].error_message", "no", 12)
    assert not allowed.covers("x: Fetch v1", "topics[t].error_message", "yes", "words")
