"""Tests the publication of a commit to the metadata log. Listeners receive the commit in slices before the response is
sent."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import pytest

from odradek.broker.configuration.resources import SettingChange
from odradek.broker.metadata.cluster_metadata import STEPS_PER_TURN
from odradek.broker.metadata.config_changes import ResourceChanges, alter_configs
from odradek.broker.metadata.image import MetadataImage, TopicImage
from odradek.broker.metadata.records import Decision
from odradek.broker.metadata.replaying import SLICE_RECORDS
from odradek.broker.metadata.topics import NewTopic, PartitionIncrease, create_partitions, delete_topics
from odradek.broker.runtime.slices import ENTRIES_PER_SLICE
from odradek.broker.runtime.waiting import Deferred
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.struct import Message
from tests.support.fake_disk import FakeDisk, Fault
from tests.support.metadata import NODE, Running, alter, create, restarted, topic_records

OF_A_GROUP = {"share.isolation.level": "read_committed", "share.delivery.count.limit": "3"}


@dataclass
class Listening:
    heard: list[str] = field(default_factory=list)

    def topic_created(self, topic: TopicImage) -> None:
        self.heard.append(f"created {topic.name} with {len(topic.partitions)}")

    def partitions_added(self, topic: TopicImage) -> None:
        self.heard.append(f"{topic.name} has {len(topic.partitions)}")

    def topic_deleted(self, topic: TopicImage) -> None:
        self.heard.append(f"deleted {topic.name}")

    def topic_config_changed(self, topic: str) -> None:
        self.heard.append(f"settings of {topic}")

    def group_config_changed(self, group_id: str) -> None:
        self.heard.append(f"settings of group {group_id}")

    def broker_config_changed(self) -> None:
        self.heard.append("settings of the broker")

    def features_changed(self) -> None:
        pass

    def client_quotas_changed(self) -> None:
        self.heard.append("client quotas")


def test_listeners_hear_once_of_each_thing_that_changed() -> None:
    running = Running(FakeDisk())
    listener = Listening()
    running.metadata.add_listener(listener)
    running.create("a", "b")
    running.metadata.submit(lambda image: create_partitions(image, [PartitionIncrease("a", 3)], node=NODE)).outcome()
    alter(running, "a", "retention.ms", "5")
    of_group = ResourceChanges(32, "g", [SettingChange(name, 0, value) for name, value in OF_A_GROUP.items()])
    running.metadata.submit(
        lambda image: alter_configs(image, running.config, [of_group], node_id=1, is_incremental=True)
    ).outcome()
    running.metadata.submit(lambda image: delete_topics(image, [("b", bytes(16))])).outcome()
    created = ["created a with 1", "created b with 1", "a has 3"]
    assert listener.heard == [*created, "settings of a", "settings of group g", "deleted b"]


def test_the_answer_comes_after_the_listeners() -> None:
    running = Running(FakeDisk())
    listener = Listening()
    running.metadata.add_listener(listener)
    heard_before_answer: list[list[str]] = []
    answer = running.metadata.commit(topic_records("t"))
    answer.when_done(lambda _: heard_before_answer.append(list(listener.heard)))
    assert heard_before_answer == [["created t with 1"]]


# --- Many topics at once.


class ManyTopics:
    """A request that creates many topics. Their records are durable, and only the first slice has been published."""

    def __init__(self, count: int = SLICE_RECORDS) -> None:  # Each topic has two records.
        self.turns: list[Callable[[], None]] = []
        self.running = Running(FakeDisk(), later=self.turns.append)
        self.listener = Listening()
        self.running.metadata.add_listener(self.listener)
        self.names = [f"t{number}" for number in range(count)]
        topics = [NewTopic(name, 1, 1) for name in self.names]
        self.answer = self.running.metadata.submit(lambda image: create(image, topics))

    @property
    def topics(self) -> list[str]:
        return list(self.running.metadata.image.topics)

    def go_on(self) -> None:
        while self.turns:
            self.turns.pop(0)()


def test_many_topics_appear_in_slices_each_with_its_partitions_and_the_answer_comes_last() -> None:
    many = ManyTopics()
    assert many.topics == many.names[: SLICE_RECORDS // 2]
    assert many.listener.heard == [f"created {name} with 1" for name in many.topics]
    assert not many.answer.is_done
    many.go_on()
    assert many.topics == many.names
    assert many.listener.heard == [f"created {name} with 1" for name in many.names]
    assert many.answer.is_done


class Stepping(Listening):
    """A listener that needs one step for each partition."""

    steps = 0

    def topic_created(self, topic: TopicImage) -> Iterator[None]:  # type: ignore[override]
        for _ in topic.partitions:
            self.steps += 1
            yield


@pytest.mark.parametrize("is_stopped", [False, True])
def test_listeners_take_several_turns_over_the_partitions_of_a_topic_and_the_answer_comes_last(
    is_stopped: bool,
) -> None:
    many = ManyTopics(0)
    listener = Stepping()
    many.running.metadata.add_listener(listener)
    count = 2 * ENTRIES_PER_SLICE
    answer = many.running.metadata.submit(lambda image: create(image, [NewTopic("large", count, 1)]))
    assert many.topics == []  # The records are also encoded over several turns, so none has been published yet.
    while "large" not in many.topics:
        many.turns.pop(0)()
    assert listener.steps == STEPS_PER_TURN + 1
    assert not answer.is_done
    if is_stopped:
        many.running.stop()
    many.go_on()
    assert listener.steps == count
    assert answer.is_done


def test_a_broker_whose_directory_goes_publishes_no_more() -> None:
    many = ManyTopics()
    before = many.topics
    many.running.metadata.abandon()
    many.running.metadata.commit(topic_records("later"))
    many.go_on()
    assert many.topics == before
    assert not many.answer.is_done


def test_the_next_decision_waits_until_all_topics_of_the_last_one_are_there() -> None:
    many = ManyTopics()
    seen: list[int] = []

    def count_topics(image: MetadataImage) -> Decision[None]:
        seen.append(len(image.topics))
        return Decision(None)

    many.running.metadata.submit(count_topics)
    assert seen == []
    many.go_on()
    assert seen == [len(many.names)]


def test_a_broker_that_stops_publishes_the_rest_first() -> None:
    many = ManyTopics()
    many.running.stop()
    assert many.answer.is_done
    assert many.topics == many.names
    many.go_on()  # The turn that was already scheduled has no work left.
    assert len(many.listener.heard) == len(many.names)


def test_threads_prepare_durable_records_before_they_are_published() -> None:
    disk = FakeDisk()
    running = Running(disk)
    prepared: list[tuple[int, list[str]]] = []

    def prepare(records: Sequence[Message]) -> Callable[[], None]:
        return lambda: prepared.append((len(records), list(running.metadata.image.topics)))

    running.metadata.prepare = prepare
    running.create("t")
    assert prepared == [(2, [])]
    disk.fail(2, Fault.EIO)  # The sync fails.
    with pytest.raises(KafkaError):
        running.metadata.commit(topic_records("lost")).outcome()
    assert len(prepared) == 1


@pytest.mark.parametrize("how", ["done", "failed"])
def test_a_write_of_a_listener_delays_the_next_decision_but_no_response(how: str) -> None:
    running = Running(FakeDisk())
    running.create("t")
    written: Deferred[int] = Deferred()

    class Writing(Listening):
        def topic_deleted(self, topic: TopicImage) -> None:
            running.metadata.hold_until(written)

    running.metadata.add_listener(Writing())
    running.metadata.submit(lambda image: delete_topics(image, [("t", bytes(16))])).outcome()
    again = running.metadata.submit(lambda image: create(image, [NewTopic("t", 1, 1)]))
    assert not again.is_done
    assert "t" not in running.metadata.image.topics
    if how == "done":
        written.resolve(1)
    else:
        written.fail(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR))
    assert again.is_done
    assert "t" in running.metadata.image.topics


def test_a_broker_setting_is_in_force_when_the_listeners_hear_of_it() -> None:
    running = Running(FakeDisk())
    at_that_time: list[int] = []

    class Reading(Listening):
        def broker_config_changed(self) -> None:
            at_that_time.append(running.config.log_segment_bytes)

        def features_changed(self) -> None:
            pass

    running.metadata.add_listener(Reading())
    resource = ResourceChanges(4, "1", [SettingChange("log.segment.bytes", 0, "2000000")])
    running.metadata.submit(
        lambda image: alter_configs(image, running.config, [resource], node_id=1, is_incremental=True)
    ).outcome()
    assert at_that_time == [2_000_000]
    again = restarted(running)
    assert again.config.log_segment_bytes == 2_000_000
