"""A broker's partitions on a fake disk, with a clock, a loop and threads that the test controls.

Tests call the handlers as the dispatcher does. Nothing listens on a port.
"""

from collections.abc import Mapping
from dataclasses import replace
from itertools import count
from types import SimpleNamespace
from typing import Any

from odradek.broker.api.context import AllowAll, ConnectionInfo, RequestContext
from odradek.broker.broker import OFFERED
from odradek.broker.coordinators.verification import PartitionAdder, Verifier
from odradek.broker.fetch.sessions import FetchSessions
from odradek.broker.metadata.image import MetadataImage, TopicImage
from odradek.broker.partitions.group_commit import AppendFlush, LogSyncs
from odradek.broker.partitions.partition import Partition
from odradek.broker.partitions.registry import Partitions
from odradek.broker.runtime.loop_watch import LoopWatch
from odradek.broker.runtime.slices import run_to_end
from odradek.broker.runtime.waiting import Deferred
from odradek.broker.runtime.workers import DecompressionWorkers
from odradek.broker.transactions.producers import Seals, TwoPhaseProducers
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.messages.partition_record import PartitionRecord
from odradek.protocol.messages.register_broker_record import BrokerEndpoint, RegisterBrokerRecord
from odradek.protocol.messages.remove_topic_record import RemoveTopicRecord
from odradek.protocol.messages.topic_record import TopicRecord
from odradek.storage.disk import Disk
from odradek.storage.log_config import LogConfig
from odradek.storage.log_directory import DirectoryId, LogDirectory
from tests.support.clock import ManualClock, ManualTimers
from tests.support.manual_loop import ManualTick, ManualWorkers

NOW_MS = 1_800_000_000_000
NODE_ID = 1


class BrokerScene:
    def __init__(self, disk: Disk, path: str, **settings: Any) -> None:
        self.clock = ManualClock(NOW_MS)
        self.timers = ManualTimers(self.clock)
        self.tick = ManualTick()
        self.workers = ManualWorkers()
        self.image = MetadataImage()
        self.image.replay(
            RegisterBrokerRecord(
                broker_id=NODE_ID,
                fenced=False,
                end_points=[BrokerEndpoint(name="PLAINTEXT", host="localhost", port=9092)],
            )
        )
        self.log_configs: dict[str, LogConfig] = {}
        self.discarded: list[tuple[str, int]] = []
        self.created: list[str] = []
        self.leader_epoch = 0  # leader epoch of partitions created later
        self._ids = count(1)
        self.two_phase = TwoPhaseProducers(are_all_known=True)
        self.seals = Seals()
        self.log_directory = LogDirectory.open(disk, path, DirectoryId(NODE_ID, None, "cluster", "directory"))
        self.partitions = Partitions(
            self.image,
            self.log_directory,
            node_id=NODE_ID,
            log_config=lambda topic: self.log_configs.get(topic, LogConfig()),
            clock=self.clock,
            flush=AppendFlush(self.tick),
            syncs=LogSyncs(self.workers),
            discard=lambda log, delay_ms: self.discarded.append((log.path, delay_ms)),
            new_uuid=lambda: next(self._ids).to_bytes(16, "big"),
            two_phase=self.two_phase,
            seals=self.seals,
        )
        defaults: Mapping[str, Any] = {
            "node_id": NODE_ID,
            "fetch_max_bytes": 55 * 1024 * 1024,
            "auto_create_topics_enable": True,
            "max_request_partition_size_limit": 2000,
            "transaction_partition_verification_enable": True,
            "add_partitions_to_txn_retry_backoff_ms": 20,
            "add_partitions_to_txn_retry_backoff_max_ms": 100,
            "request_timeout_ms": 30_000,
        }
        session_ids = count(1)
        config = SimpleNamespace(**{**defaults, **settings})
        self.coordinator: PartitionAdder | None = None  # coordinator of transactional ids
        self.broker: Any = SimpleNamespace(
            config=config,
            clock=self.clock,
            timers=self.timers,
            watch=LoopWatch(self.timers),
            workers=self.workers,
            decompression_workers=DecompressionWorkers(self.workers),
            metadata=SimpleNamespace(image=self.image),
            offered=OFFERED,
            rules=OFFERED.rules,
            partitions=self.partitions,
            log_directory=self.log_directory,
            two_phase=self.two_phase,
            seals=self.seals,
            fetch_sessions=FetchSessions(1000, lambda: next(session_ids)),
            cluster_id="cluster",
            auto_creation=SimpleNamespace(start_creating=lambda names, charge=None: self.created.extend(names)),
            verifier=Verifier(
                config, self.clock, self.timers, coordinator=lambda: self.coordinator, two_phase=self.two_phase
            ),
        )

    def topic(self, name: str, partition_count: int = 1, **settings: Any) -> TopicImage:
        """Creates a topic, as the controller does."""
        self.log_configs[name] = replace(LogConfig(), **settings)
        topic_id = b"topic id" + next(self._ids).to_bytes(8, "big")
        self.image.replay(TopicRecord(name=name, topic_id=topic_id))
        for partition_id in range(partition_count):
            self.image.replay(
                PartitionRecord(
                    partition_id=partition_id,
                    topic_id=topic_id,
                    replicas=[NODE_ID],
                    isr=[NODE_ID],
                    leader=NODE_ID,
                    leader_epoch=self.leader_epoch,
                )
            )
        topic = self.image.topics[name]
        run_to_end(self.partitions.opening_topic(topic))
        return topic

    def delete_topic(self, name: str) -> None:
        topic = self.image.topics[name]
        self.image.replay(RemoveTopicRecord(topic_id=topic.topic_id))
        run_to_end(self.partitions.deleting_topic(topic))

    def partition(self, topic: str, index: int = 0) -> Partition:
        return self.partitions.get(topic, index)

    def context(self, api_key: ApiKey, version: int, client_id: str | None = "a-client") -> RequestContext:
        connection = ConnectionInfo(1, "127.0.0.1", 50_000)
        return RequestContext(api_key, version, 1, client_id, self.clock.now_ms(), connection, AllowAll())

    def settle(self) -> None:
        """Runs ticks and threads until no work is left, without advancing the clock."""
        while len(self.tick) or self.workers.jobs:
            self.tick.run()
            self.workers.finish_all()


def answer_of(reply: Any) -> Any:
    """Returns the response, whether the handler returned it immediately or delivered it later."""
    if isinstance(reply, Deferred):
        assert reply.is_done, "the request is still parked"
        return reply.outcome()
    return reply
