"""Tests the quota for creating and deleting partitions (docs/spec/security.md#s4-3, scenario 147)."""

from types import SimpleNamespace
from typing import Any

import pytest

from odradek.broker.api.dispatch import Dispatcher
from odradek.broker.api.metered import Throttling
from odradek.broker.handlers.by_api_key import handler_of
from odradek.broker.metadata.topic_creation import TopicCreation
from odradek.broker.security.quotas.metering import Metering, Windows
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.errors import ErrorCode as E
from odradek.protocol.kafka_rules import KafkaRules
from odradek.protocol.messages.create_partitions_request import CreatePartitionsRequest, CreatePartitionsTopic
from odradek.protocol.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from odradek.protocol.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from odradek.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from odradek.protocol.struct import Message
from tests.support.clock import ManualTimers
from tests.support.fake_disk import FakeDisk
from tests.support.metadata import Running, ids
from tests.support.peer import Peer, server_around

THROTTLED = E.THROTTLING_QUOTA_EXCEEDED.value


class Scene:
    """A broker whose clients may create or delete one partition per second after the first eleven."""

    def __init__(self) -> None:
        self.running = Running(FakeDisk())
        self.timers = ManualTimers(self.running.clock)
        metadata, config = self.running.metadata, self.running.config
        broker: Any = SimpleNamespace(
            metadata=metadata,
            config=config,
            auto_creation=TopicCreation(metadata, config, ids()),
            cluster_id="c",
            rules=KafkaRules.KAFKA_4_4,
        )
        dispatcher: Dispatcher[Any] = Dispatcher(broker, self.running.clock, handler_of)
        metering = Metering(Windows(), Windows())
        metering.set_limits({(("user", None),): {"controller_mutation_rate": 1}})
        dispatcher.throttling = Throttling(metering)
        server = server_around(dispatcher, None, self.timers)
        self.peer = Peer(server)

    def ask(self, request: Message, version: int) -> Any:
        self.peer.ask(request, version)
        return self.peer.answer(ApiKey(request.API_KEY), version)

    def create(self, *topics: tuple[str, int], version: int = 7, validate_only: bool = False) -> tuple[list[int], int]:
        """Creates topics. Returns the error codes and the throttle time."""
        new_topics = [CreatableTopic(name=name, num_partitions=count, replication_factor=1) for name, count in topics]
        answer = self.ask(CreateTopicsRequest(topics=new_topics, validate_only=validate_only), version)
        return [each.error_code for each in answer.topics], answer.throttle_time_ms

    def delete(self, *names: str, version: int = 6) -> tuple[list[int], int]:
        by_name = [DeleteTopicState(name=name) for name in names]
        request = DeleteTopicsRequest(topics=by_name) if version >= 6 else DeleteTopicsRequest(topic_names=list(names))
        answer = self.ask(request, version)
        return [each.error_code for each in answer.responses], answer.throttle_time_ms

    def enlarge(self, name: str, count: int, version: int = 3) -> tuple[list[int], int]:
        request = CreatePartitionsRequest(topics=[CreatePartitionsTopic(name=name, count=count, assignments=None)])
        answer = self.ask(request, version)
        return [each.error_code for each in answer.results], answer.throttle_time_ms

    @property
    def topics(self) -> list[str]:
        return list(self.running.metadata.image.topics)

    def wait(self, ms: int) -> None:
        self.timers.advance(ms)


async def test_scenario_147_a_topic_that_takes_the_bucket_below_zero_passes_and_the_next_is_refused() -> None:
    scene = Scene()
    assert scene.create(("a", 10), ("b", 7)) == ([0, 0], 0)
    assert scene.create(("c", 1), ("d", 1)) == ([THROTTLED, THROTTLED], 6000)
    assert scene.topics == ["a", "b"]


async def test_scenario_147_the_quota_holds_within_one_request_too() -> None:
    scene = Scene()
    assert scene.create(("a", 17), ("b", 1)) == ([0, THROTTLED], 6000)


async def test_scenario_147_the_connection_is_muted_until_the_bucket_is_at_zero() -> None:
    scene = Scene()
    scene.create(("a", 17), ("b", 1))
    assert scene.peer.transport.is_paused
    scene.wait(6000)
    assert not scene.peer.transport.is_paused
    assert scene.create(("b", 1)) == ([0], 0)


@pytest.mark.parametrize("version", [2, 5])
async def test_scenario_147_older_versions_create_all_topics_and_are_throttled(version: int) -> None:
    scene = Scene()
    assert scene.create(("a", 10), ("b", 7), version=version) == ([0, 0], 6000)
    scene.wait(6000)
    assert scene.create(("c", 3), version=version) == ([0], 3000)


async def test_scenario_147_a_topic_that_is_refused_for_another_reason_costs_no_quota() -> None:
    scene = Scene()
    scene.create(("a", 11))
    assert scene.create(("a", 1000)) == ([E.TOPIC_ALREADY_EXISTS.value], 0)
    assert scene.create(("b", 1)) == ([0], 0)


async def test_scenario_147_a_validation_is_refused_too_while_below_zero() -> None:
    scene = Scene()
    scene.create(("a", 12))
    assert scene.create(("b", 1), validate_only=True) == ([THROTTLED], 1000)


async def test_scenario_147_deletions_and_enlargements_count_the_removed_and_added_partitions() -> None:
    scene = Scene()
    assert scene.create(("a", 4), ("b", 5), ("c", 1)) == ([0, 0, 0], 0)
    assert scene.enlarge("a", 8) == ([0], 0)
    assert scene.enlarge("a", 9) == ([THROTTLED], 3000)
    scene.wait(3000)
    assert sorted(scene.delete("b", "c")[0]) == [0, THROTTLED]
    assert sorted(scene.topics) in (["a", "c"], ["a", "b"])


async def test_scenario_147_older_versions_delete_and_enlarge_all_the_same() -> None:
    scene = Scene()
    scene.create(("a", 11))
    assert scene.enlarge("a", 13, version=2) == ([0], 2000)
    scene.wait(2000)
    assert scene.delete("a", version=4) == ([0], 13_000)
    assert scene.topics == []


async def test_a_topic_that_is_merely_mentioned_is_not_created_beyond_the_quota() -> None:
    scene = Scene()
    scene.create(("a", 12))
    wish = MetadataRequest(topics=[MetadataRequestTopic(name="b")], allow_auto_topic_creation=True)
    answer = scene.ask(wish, 12)
    assert (answer.topics[0].error_code, answer.throttle_time_ms) == (E.UNKNOWN_TOPIC_OR_PARTITION.value, 0)
    assert scene.topics == ["a"]
    scene.wait(1000)
    scene.ask(wish, 12)
    assert scene.topics == ["a", "b"]
