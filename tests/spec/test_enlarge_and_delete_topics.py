"""Tests CreatePartitions and DeleteTopics. The expected codes, messages and order come from Kafka 4.3.1's answers to
the same requests."""

import pytest

from odradek.broker.metadata.image import MetadataImage
from odradek.broker.metadata.topics import DeletedTopic, PartitionIncrease, create_partitions, delete_topics
from odradek.protocol.errors import ErrorCode as E
from odradek.protocol.errors import KafkaError
from odradek.protocol.kafka_rules import NEWEST, KafkaRules
from odradek.protocol.messages.partition_record import PartitionRecord
from odradek.protocol.messages.remove_topic_record import RemoveTopicRecord
from tests.support.metadata import NODE, apply, decided, image_with

ZERO = bytes(16)
NOBODY = b"\x01" * 16
TOO_MANY = "Excessively large number of additional partitions per request."


def said(error: KafkaError | None) -> tuple[E | None, str | None]:
    return (None, None) if error is None else (error.code, error.message)


def enlarge(
    image: MetadataImage, *wishes: PartitionIncrease, rules: KafkaRules = NEWEST
) -> list[tuple[str, E | None, str | None]]:
    results = decided(create_partitions(image, wishes, node=NODE, rules=rules)).response
    return [(name, *said(error)) for name, error in results]


@pytest.mark.parametrize(
    ("count", "words"),
    [
        (2, "Topic already has 2 partition(s)."),
        (1, "The topic t currently has 2 partition(s); 1 would not be an increase."),
        (0, "The topic t currently has 2 partition(s); 0 would not be an increase."),
        (-1, "The topic t currently has 2 partition(s); -1 would not be an increase."),
    ],
)
def test_a_topic_does_not_get_fewer_partitions_or_as_many(count: int, words: str) -> None:
    answer = enlarge(image_with("t", partitions=2), PartitionIncrease("t", count))
    assert answer == [("t", E.INVALID_PARTITIONS, words)]


def test_an_unknown_topic_does_not_hinder_a_known_one() -> None:
    answers = enlarge(image_with("t"), PartitionIncrease("none", 3), PartitionIncrease("t", 3))
    assert answers == [("none", E.UNKNOWN_TOPIC_OR_PARTITION, None), ("t", None, None)]


def test_a_name_given_twice_is_refused_first() -> None:
    answers = enlarge(image_with("t"), PartitionIncrease("n", 3), PartitionIncrease("t", 3), PartitionIncrease("t", 4))
    assert answers == [
        ("t", E.INVALID_REQUEST, "Duplicate topic name."),
        ("n", E.UNKNOWN_TOPIC_OR_PARTITION, None),
    ]


@pytest.mark.parametrize(
    ("count", "assignments", "words"),
    [
        (4, [[1]], "Attempted to add 2 additional partition(s), but only 1 assignment(s) were specified."),
        (3, [], "Attempted to add 1 additional partition(s), but only 0 assignment(s) were specified."),
        (3, [[2]], "The manual partition assignment includes broker 2, but no such broker is registered."),
        (3, [[]], "The manual partition assignment includes an empty replica list."),
        (3, [[1, 1]], "The manual partition assignment includes the broker 1 more than once."),
    ],
)
def test_an_invalid_assignment_of_new_partitions_is_refused(
    count: int, assignments: list[list[int]], words: str
) -> None:
    answer = enlarge(image_with("t", partitions=2), PartitionIncrease("t", count, assignments))
    assert answer == [("t", E.INVALID_REPLICA_ASSIGNMENT, words)]


def test_more_new_partitions_than_can_be_recorded_at_once_are_refused() -> None:
    image = image_with("t")
    assert enlarge(image, PartitionIncrease("t", 10_001)) == [("t", None, None)]
    assert enlarge(image, PartitionIncrease("t", 10_002)) == [("t", E.POLICY_VIOLATION, TOO_MANY)]
    before = KafkaRules.KAFKA_4_3
    assert enlarge(image, PartitionIncrease("t", 10_002), rules=before) == [("t", E.UNKNOWN_SERVER_ERROR, None)]


@pytest.mark.parametrize(
    ("increases", "codes"),
    [
        ([("a", 6_001), ("b", 4_001)], [None, None]),
        ([("a", 6_001), ("b", 4_002)], [E.POLICY_VIOLATION] * 2),
        ([("a", 10_002), ("b", 3)], [E.POLICY_VIOLATION] * 2),
        ([("a", 10_002), ("missing", 3)], [E.POLICY_VIOLATION] * 2),
        ([("a", 1), ("b", 20_000)], [E.POLICY_VIOLATION] * 2),
        ([("missing", 20_002), ("a", 10)], [E.UNKNOWN_TOPIC_OR_PARTITION, None]),
        ([("a", 20_000), ("a", 20_000), ("b", 5)], [E.INVALID_REQUEST, None]),
    ],
)
def test_all_topics_of_a_request_for_too_many_partitions_are_refused(
    increases: list[tuple[str, int]], codes: list[E | None]
) -> None:
    """O6: nonexistent topics and topics that the request names twice do not count towards the limit
    (docs/spec/kafka-4.4.md#s5-5)."""
    image = image_with("a", "b")
    answers = enlarge(image, *(PartitionIncrease(name, count) for name, count in increases))
    assert [code for _, code, _ in answers] == codes


def test_new_partitions_are_recorded_behind_the_old_ones() -> None:
    image = image_with("t", partitions=2)
    decision = decided(create_partitions(image, [PartitionIncrease("t", 4)], node=NODE))
    assert [type(record) for record in decision.records] == [PartitionRecord] * 2
    apply(image, decision)
    assert [partition.partition_id for partition in image.topics["t"].partitions] == [0, 1, 2, 3]
    assert image.topics["t"].partitions[3].leader == NODE.node_id


def deletion(image: MetadataImage, *wishes: tuple[str | None, bytes]) -> list[tuple[str | None, bytes, E | None]]:
    results = decided(delete_topics(image, wishes)).response
    return [(one.name, one.topic_id, said(one.error)[0]) for one in results]


def test_a_topic_goes_by_its_name_or_by_its_id() -> None:
    image = image_with("a", "b")
    a, b = image.topics["a"].topic_id, image.topics["b"].topic_id
    decision = decided(delete_topics(image, [("a", ZERO), (None, b)]))
    assert decision.response == [DeletedTopic("a", a), DeletedTopic("b", b)]
    assert decision.records == (RemoveTopicRecord(topic_id=a), RemoveTopicRecord(topic_id=b))
    apply(image, decision)
    assert not image.topics
    assert not image.topics_by_id


def test_a_missing_topic_cannot_be_deleted() -> None:
    answers = deletion(image_with("a"), ("none", ZERO), (None, NOBODY))
    assert answers == [
        ("none", ZERO, E.UNKNOWN_TOPIC_OR_PARTITION),
        (None, NOBODY, E.UNKNOWN_TOPIC_ID),
    ]


def test_refused_deletions_come_before_accepted_ones_in_the_response() -> None:
    image = image_with("a")
    answers = deletion(image, ("a", ZERO), ("none", ZERO))
    assert [(name, code) for name, _, code in answers] == [("none", E.UNKNOWN_TOPIC_OR_PARTITION), ("a", None)]


@pytest.mark.parametrize(
    ("wishes", "answer"),
    [
        ([(None, ZERO)], (None, ZERO, E.INVALID_REQUEST)),
        ([("a", NOBODY)], ("a", NOBODY, E.INVALID_REQUEST)),
        ([("a", ZERO), ("a", ZERO)], ("a", ZERO, E.INVALID_REQUEST)),
        ([(None, NOBODY), (None, NOBODY)], (None, NOBODY, E.INVALID_REQUEST)),
    ],
)
def test_a_deletion_must_name_its_topic_exactly_once(
    wishes: list[tuple[str | None, bytes]], answer: tuple[str | None, bytes, E]
) -> None:
    image = image_with("a")
    assert deletion(image, *wishes) == [answer]
    assert decided(delete_topics(image, wishes)).records == ()


def test_the_same_topic_by_name_and_by_id_is_not_deleted() -> None:
    image = image_with("a")
    topic_id = image.topics["a"].topic_id
    decision = decided(delete_topics(image, [("a", ZERO), (None, topic_id)]))
    (result,) = decision.response
    assert result.error is not None
    assert result.error.message == "The provided topic name maps to an ID that was already supplied."
    assert decision.records == ()
