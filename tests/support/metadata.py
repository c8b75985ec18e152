"""Builds metadata images for tests of decisions and opens a broker's metadata on a disk in memory."""

from collections.abc import Callable, Iterable
from itertools import count
from typing import Any, TypeVar

from odradek.broker.configuration.config import BrokerConfig, configure
from odradek.broker.configuration.listeners import Listener
from odradek.broker.configuration.resources import SettingChange
from odradek.broker.coordinators.stored_pending import stores_pending
from odradek.broker.metadata.cluster_metadata import ClusterMetadata, at_once
from odradek.broker.metadata.config_changes import ResourceChanges, alter_configs
from odradek.broker.metadata.image import MetadataImage, Node
from odradek.broker.metadata.records import Decision
from odradek.broker.metadata.topics import NewTopic, TopicDefaults, TopicResult, create_topics
from odradek.broker.runtime.slices import Steps, run_to_end
from odradek.broker.runtime.workers import Workers
from odradek.protocol.kafka_rules import NEWEST, KafkaRules
from odradek.protocol.messages.partition_record import PartitionRecord
from odradek.protocol.messages.register_broker_record import RegisterBrokerRecord
from odradek.protocol.messages.topic_record import TopicRecord
from odradek.protocol.struct import Message
from odradek.storage.disk import Disk
from odradek.storage.log_directory import DirectoryId, LogDirectory
from tests.support.clock import ManualClock
from tests.support.fake_disk import FakeDisk
from tests.support.workers_here import WorkersHere

R = TypeVar("R")

NODE = Node(1, b"directory-of-one")
FEATURES = {  # features of a new cluster
    "metadata.version": 33,
    "eligible.leader.replicas.version": 1,
    "group.version": 1,
    "share.version": 2,
    "streams.version": 1,
    "transaction.version": 2,
}
DATA = "/data"
CLUSTER_ID = "b2RyYWRlay1vcmFjbGUtMQ"
DIRECTORY_ID = "9DitBXe7pyoCRUwgpuuW-w"


def ids() -> Callable[[], bytes]:
    """Returns a function that generates consecutive 16-byte ids, none of them zero."""
    numbers = count(1)
    return lambda: next(numbers).to_bytes(16, "big")


def image_with(*topics: str, partitions: int = 1) -> MetadataImage:
    """Returns an image with one registered broker and the given topics."""
    image = MetadataImage()
    image.replay(RegisterBrokerRecord(broker_id=NODE.node_id, broker_epoch=1, log_dirs=[NODE.directory_id]))
    apply(image, create(image, [NewTopic(name, partitions, 1) for name in topics]))
    return image


def create(image: MetadataImage, topics: list[NewTopic], partitions: int = 1) -> Decision[list[TopicResult]]:
    defaults = TopicDefaults(partitions, 1)
    return decided(create_topics(image, topics, node=NODE, defaults=defaults, new_topic_id=ids()))


def decided(steps: Steps[R]) -> R:
    """Runs all steps of a decision and returns the decision. A broker runs the steps in slices."""
    try:
        while True:
            next(steps)
    except StopIteration as done:
        decision: R = done.value
        return decision


def apply(image: MetadataImage, decision: Decision[Any] | Iterable[Message]) -> None:
    for record in decision.records if isinstance(decision, Decision) else decision:
        image.replay(record)


def config_with(**settings: str) -> BrokerConfig:
    return configure({}, {}, {name.replace("_", "."): value for name, value in settings.items()})[0]


class Running:
    """A data directory with open metadata, as in a running broker."""

    def __init__(
        self,
        disk: Disk,
        now_ms: int = 1_000_000,
        config: BrokerConfig | None = None,
        workers: Workers | None = None,
        later: Callable[[Callable[[], None]], object] = at_once,
        rules: KafkaRules = NEWEST,
    ) -> None:
        self.disk = disk
        self.clock = ManualClock(now_ms)
        self.config = config or config_with()
        identity = DirectoryId(self.config.node_id, None, CLUSTER_ID, DIRECTORY_ID)
        self.directory = LogDirectory.open(disk, DATA, identity)
        self.metadata = run_to_end(
            ClusterMetadata.opening(
                disk,
                self.directory,
                self.config,
                self.clock,
                workers or WorkersHere(),
                endpoints=[Listener("PLAINTEXT", "localhost", 9092)],
                new_uuid=ids(),
                later=later,
                stores_pending=lambda: stores_pending(disk, DATA, self.directory.partitions()),
                rules=rules,
            )
        )

    def create(self, *names: str) -> list[TopicResult]:
        topics = [NewTopic(name) for name in names]
        new_id = ids()
        start = len(self.metadata.image.topics)
        for _ in range(start):
            new_id()
        answer = self.metadata.submit(
            lambda image: create_topics(
                image, topics, node=self.metadata.node, defaults=TopicDefaults(1, 1), new_topic_id=new_id
            )
        )
        results = answer.outcome()
        assert isinstance(results, list)
        return results

    def stop(self) -> None:
        self.metadata.close()
        self.directory.close(broker_epoch=self.metadata.broker_epoch)


def topic_records(name: str) -> list[Message]:
    """Returns the records of the metadata log for a topic with one partition."""
    topic_id = name.encode().ljust(16, b"_")
    return [
        TopicRecord(name=name, topic_id=topic_id),
        PartitionRecord(
            partition_id=0,
            topic_id=topic_id,
            replicas=[1],
            isr=[1],
            leader=1,
            leader_epoch=0,
            directories=[NODE.directory_id],
        ),
    ]


def restarted(running: Running, *, killed: bool = False) -> Running:
    if not killed:
        running.stop()
    assert isinstance(running.disk, FakeDisk)
    return Running(running.disk.after_kill())


def alter(running: Running, topic: str, name: str, value: str) -> None:
    resource = ResourceChanges(2, topic, [SettingChange(name, 0, value)])
    running.metadata.submit(
        lambda image: alter_configs(image, running.config, [resource], node_id=1, is_incremental=True)
    ).outcome()
