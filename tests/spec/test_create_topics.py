"""Tests that CreateTopics refuses invalid requests with the right codes and messages, and writes the right records for
valid requests.

The expected messages are Kafka 4.3.1's answers to the same requests.
"""

import pytest

from odradek.broker.configuration.config import configure
from odradek.broker.configuration.contradictions import creatable
from odradek.broker.metadata.image import MetadataImage
from odradek.broker.metadata.topic_creation import TopicCreation, internal_topic
from odradek.broker.metadata.topics import NewTopic, TopicResult
from odradek.broker.runtime.waiting import Deferred
from odradek.protocol.errors import ErrorCode as E
from odradek.protocol.errors import KafkaError
from odradek.protocol.messages.config_record import ConfigRecord
from odradek.protocol.messages.partition_record import PartitionRecord
from odradek.protocol.messages.topic_record import TopicRecord
from odradek.protocol.topic_partition import GROUP_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE
from tests.support.metadata import NODE, apply, config_with, create, image_with


def one(image: MetadataImage, topic: NewTopic) -> TopicResult:
    (result,) = create(image, [topic]).response
    return result


def refusal(image: MetadataImage, topic: NewTopic) -> tuple[E, str | None]:
    error = one(image, topic).error
    assert error is not None
    return error.code, error.message


def configured(**settings: str | None) -> NewTopic:
    return NewTopic("t", configs=[(name.replace("_", "."), value) for name, value in settings.items()])


def assigned(*replicas: list[int], first: int = 0) -> NewTopic:
    return NewTopic("t", assignments=list(enumerate(replicas, first)))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("", "the empty string is not allowed"),
        (".", "'.' is not allowed"),
        ("..", "'..' is not allowed"),
        ("x" * 250, f"the length of '{'x' * 250}' is longer than the max allowed length 249"),
        ("a b", "'a b' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"),
        ("café", "'café' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"),
        ("a\n", "'a\n' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"),
    ],
)
def test_an_invalid_topic_name_is_refused(name: str, words: str) -> None:
    assert refusal(image_with(), NewTopic(name)) == (E.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {words}")


def test_the_longest_name_is_fine() -> None:
    assert one(image_with(), NewTopic("x" * 249)).error is None


def test_an_existing_topic_is_refused() -> None:
    assert refusal(image_with("t"), NewTopic("t")) == (E.TOPIC_ALREADY_EXISTS, "Topic 't' already exists.")


def test_dots_and_underscores_count_as_the_same_beside_an_existing_topic() -> None:
    answer = refusal(image_with("foo.bar"), NewTopic("foo_bar"))
    assert answer == (E.INVALID_TOPIC_EXCEPTION, "Topic 'foo_bar' collides with existing topic: foo.bar")


def test_two_new_topics_of_one_request_may_collide() -> None:
    assert [result.error for result in create(image_with(), [NewTopic("q.r"), NewTopic("q_r")]).response] == [None] * 2


def test_a_name_given_twice_is_refused_once_and_the_others_are_made() -> None:
    results = create(image_with(), [NewTopic("d"), NewTopic("d"), NewTopic("e")]).response
    assert [result.name for result in results] == ["e", "d"]
    assert results[0].error is None
    assert results[1].error is not None
    assert (results[1].error.code, results[1].error.message) == (E.INVALID_REQUEST, "Duplicate topic name.")


def test_the_metadata_log_is_no_topic() -> None:
    answer = refusal(image_with(), NewTopic("__cluster_metadata"))
    assert answer == (E.INVALID_REQUEST, "Creation of internal topic __cluster_metadata is prohibited.")


@pytest.mark.parametrize("count", [0, -2])
def test_an_invalid_partition_count_is_refused(count: int) -> None:
    answer = refusal(image_with(), NewTopic("t", count))
    assert answer == (E.INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value.")


@pytest.mark.parametrize("factor", [0, -2])
def test_an_invalid_replication_factor_is_refused(factor: int) -> None:
    answer = refusal(image_with(), NewTopic("t", 1, factor))
    words = "Replication factor must be larger than 0, or -1 to use the default value."
    assert answer == (E.INVALID_REPLICATION_FACTOR, words)


def test_more_replicas_than_brokers_are_refused() -> None:
    code, words = refusal(image_with(), NewTopic("t", 1, 3))
    assert code is E.INVALID_REPLICATION_FACTOR
    assert words is not None
    assert words.startswith("Unable to replicate the partition 3 time(s): The target replication factor of 3 cannot")


def test_omitted_values_are_the_brokers_defaults() -> None:
    (result,) = create(image_with(), [NewTopic("t")], partitions=4).response
    assert (result.partition_count, result.replication_factor) == (4, 1)


@pytest.mark.parametrize(
    ("topic", "code", "words"),
    [
        (
            NewTopic("t", None, 1, [(0, [1])]),
            E.INVALID_REQUEST,
            "A manual partition assignment was specified, but replication factor was not set to -1.",
        ),
        (
            NewTopic("t", 1, None, [(0, [1])]),
            E.INVALID_REQUEST,
            "A manual partition assignment was specified, but numPartitions was not set to -1.",
        ),
        (
            NewTopic("t", assignments=[(1, [1])]),
            E.INVALID_REPLICA_ASSIGNMENT,
            "partitions should be a consecutive 0-based integer sequence",
        ),
        (
            NewTopic("t", assignments=[(0, [1]), (0, [1])]),
            E.INVALID_REPLICA_ASSIGNMENT,
            "Found multiple manual partition assignments for partition 0",
        ),
        (
            assigned([]),
            E.INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes an empty replica list.",
        ),
        (
            assigned([2]),
            E.INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes broker 2, but no such broker is registered.",
        ),
        (
            assigned([1, 1]),
            E.INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes the broker 1 more than once.",
        ),
    ],
)
def test_an_impossible_replica_assignment_is_refused(topic: NewTopic, code: E, words: str) -> None:
    assert refusal(image_with(), topic) == (code, words)


def test_an_assignment_in_any_order_makes_the_partitions_in_theirs() -> None:
    result = one(image_with(), NewTopic("t", assignments=[(1, [1]), (0, [1])]))
    assert (result.error, result.partition_count, result.replication_factor) == (None, 2, 1)


@pytest.mark.parametrize(
    ("topic", "words"),
    [
        (configured(no_such="1"), "Unknown topic config name: no.such"),
        (configured(retention_ms="1", segment_bytes="x", foo="x"), "Unknown topic config name: foo"),
        (
            configured(retention_ms="soon"),
            "Invalid value soon for configuration retention.ms: Not a number of type LONG",
        ),
        (configured(retention_ms=None), "Null value not supported for topic configs: retention.ms"),
        (configured(retention_ms="-2"), "Invalid value -2 for configuration retention.ms: Value must be at least -1"),
        (
            configured(cleanup_policy="none"),
            "Invalid value none for configuration cleanup.policy: String must be one of: compact, delete",
        ),
        (
            configured(min_compaction_lag_ms="5", max_compaction_lag_ms="4"),
            "conflict topic config setting min.compaction.lag.ms (5) > max.compaction.lag.ms (4)",
        ),
        (
            configured(segment_bytes="1"),
            "Invalid value 1 for configuration segment.bytes: Value must be at least 1048576",
        ),
        (
            configured(remote_storage_enable="true"),
            (
                "Tiered Storage functionality is disabled in the broker. "
                "Topic cannot be configured with remote log storage."
            ),
        ),
        (
            configured(preallocate="yes"),
            "Invalid value yes for configuration preallocate: Expected value to be either true or false",
        ),
        (
            configured(min_cleanable_dirty_ratio="2"),
            "Invalid value 2.0 for configuration min.cleanable.dirty.ratio: Value must be no more than 1",
        ),
        (
            configured(compression_gzip_level="0"),
            "Invalid value 0 for configuration compression.gzip.level: Value must be between 1 and 9 or equal to -1",
        ),
        (
            configured(leader_replication_throttled_replicas="1"),
            (
                "Invalid value [1] for configuration leader.replication.throttled.replicas: "
                "leader.replication.throttled.replicas must be the literal '*' or a list of replicas in the following "
                "format: [partitionId]:[brokerId],[partitionId]:[brokerId],..."
            ),
        ),
    ],
)
def test_an_invalid_setting_of_a_topic_is_refused(topic: NewTopic, words: str) -> None:
    assert refusal(image_with(), topic) == (E.INVALID_CONFIG, words)


@pytest.mark.parametrize(
    "topic",
    [
        configured(cleanup_policy=""),
        configured(cleanup_policy="compact,delete"),
        configured(retention_ms=" 5 "),
        configured(preallocate="TRUE"),
        configured(internal_segment_bytes="100"),
        configured(follower_replication_throttled_replicas="*"),
        configured(leader_replication_throttled_replicas="0:1,1:1"),
        configured(retention_ms="100", local_retention_ms="200"),
    ],
)
def test_an_unusual_but_valid_setting_is_accepted(topic: NewTopic) -> None:
    assert one(image_with(), topic).error is None


def test_the_last_value_of_a_repeated_setting_counts() -> None:
    topic = NewTopic("t", configs=[("retention.ms", "1"), ("retention.ms", "2")])
    assert one(image_with(), topic).configs == {"retention.ms": "2"}


def test_too_many_partitions_refuse_the_whole_request() -> None:
    """O2: the request creates none of its topics (docs/spec/kafka-4.4.md#s5-5)."""
    with pytest.raises(KafkaError) as refused:
        create(image_with(), [NewTopic("small"), NewTopic("big", 10_000)])
    assert refused.value.code is E.POLICY_VIOLATION
    assert refused.value.message == "Excessively large number of partitions per request."


def test_too_many_records_refuse_the_whole_request() -> None:
    create(image_with(), [NewTopic("t", 9_999)])
    with pytest.raises(KafkaError) as refused:
        create(image_with(), [NewTopic("t", 10_000)])
    assert refused.value.message == "Unable to perform excessively large batch operation."


def test_a_topic_is_recorded_with_its_settings_and_then_its_partitions() -> None:
    decision = create(image_with(), [NewTopic("t", 2, 1, configs=[("retention.ms", "5")])])
    topic_id = decision.response[0].topic_id
    assert decision.records == (
        TopicRecord(name="t", topic_id=topic_id),
        ConfigRecord(resource_type=2, resource_name="t", name="retention.ms", value="5"),
        *(
            PartitionRecord(
                partition_id=index,
                topic_id=topic_id,
                replicas=[1],
                isr=[1],
                leader=1,
                leader_epoch=0,
                partition_epoch=0,
                directories=[NODE.directory_id],
            )
            for index in range(2)
        ),
    )


def test_a_decision_alone_does_not_change_the_image() -> None:
    image = image_with("a")
    create(image, [NewTopic("b")])
    assert list(image.topics) == ["a"]


def test_one_refused_topic_does_not_hinder_the_others() -> None:
    image = image_with("a")
    decision = create(image, [NewTopic("a"), NewTopic("b"), NewTopic("?")])
    apply(image, decision)
    assert [result.error is None for result in decision.response] == [False, True, False]
    assert list(image.topics) == ["a", "b"]


def test_internal_topics_are_made_with_the_settings_for_them() -> None:
    config = config_with(offsets_topic_num_partitions="3", transaction_state_log_segment_bytes="2000000")
    offsets = internal_topic("__consumer_offsets", config)
    assert offsets is not None
    assert (offsets.partition_count, offsets.replication_factor) == (3, 1)
    assert dict(offsets.configs) == {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": "104857600",
    }
    transactions = internal_topic("__transaction_state", config)
    assert transactions is not None
    assert dict(transactions.configs)["segment.bytes"] == "2000000"
    assert internal_topic("mine", config) is None


@pytest.mark.parametrize("at_most", [True, False])
def test_internal_topics_can_be_created_with_every_value_that_a_start_allows(at_most: bool) -> None:
    values = {
        name: str(allowed.most if at_most and allowed.most is not None else allowed.least)
        for name, (allowed, _) in creatable(1).items()
    }
    config, _ = configure({}, {}, values)
    for name in (GROUP_OFFSETS, TRANSACTION_STATE, SHARE_GROUP_STATE):
        topic = internal_topic(name, config)
        assert topic is not None
        assert [result.error for result in create(image_with(), [topic]).response] == [None]


def test_the_failure_to_create_an_internal_topic_is_logged_once_per_cause(caplog: pytest.LogCaptureFixture) -> None:
    metadata = Refusing(E.KAFKA_STORAGE_ERROR, "the disk is full")
    creation = TopicCreation(metadata, config_with(), new_topic_id=lambda: bytes(16))  # type: ignore[arg-type]
    for _ in range(3):
        creation.create_internal(TRANSACTION_STATE)
    metadata.refusal = KafkaError(E.KAFKA_STORAGE_ERROR, "the log is closed")
    creation.create_internal(TRANSACTION_STATE)
    assert [each.levelname for each in caplog.records] == ["WARNING", "WARNING"]
    assert ["the disk is full" in each.message for each in caplog.records] == [True, False]


class Refusing:
    """A metadata log that refuses every record."""

    def __init__(self, code: E, why: str) -> None:
        self.refusal = KafkaError(code, why)

    def submit(self, decide: object) -> Deferred[list[TopicResult]]:
        answer: Deferred[list[TopicResult]] = Deferred()
        answer.fail(self.refusal)
        return answer
