"""A tour of the requests that Kafka 4.4 changed, and the recording of Kafka 4.4.0's responses.

`python -m tests.conformance.what_4_4_changed` needs Java and the oracle kit. It records the tour with a running Kafka
4.4.0 and writes `tests/support/recordings/kafka-4.4.0`.
"""

from __future__ import annotations

import base64
import itertools
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from odradek.broker.coordinators.shards import java_hash
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages import initialize_share_group_state_request as initialization
from odradek.protocol.messages import read_share_group_state_request as reading
from odradek.protocol.messages import read_share_group_state_summary_request as summary
from odradek.protocol.messages import write_share_group_state_request as writing
from odradek.protocol.messages.api_versions_request import ApiVersionsRequest
from odradek.protocol.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from odradek.protocol.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from odradek.protocol.messages.delete_groups_request import DeleteGroupsRequest
from odradek.protocol.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from odradek.protocol.messages.describe_cluster_request import DescribeClusterRequest
from odradek.protocol.messages.describe_topic_partitions_request import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from odradek.protocol.messages.end_txn_request import EndTxnRequest
from odradek.protocol.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from odradek.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from odradek.protocol.messages.init_producer_id_request import InitProducerIdRequest
from odradek.protocol.messages.list_offsets_request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from odradek.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from odradek.protocol.messages.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from odradek.protocol.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from odradek.protocol.messages.share_fetch_request import FetchPartition as SharePartition
from odradek.protocol.messages.share_fetch_request import FetchTopic as ShareTopic
from odradek.protocol.messages.share_fetch_request import ShareFetchRequest
from odradek.protocol.messages.share_group_heartbeat_request import ShareGroupHeartbeatRequest
from odradek.protocol.messages.txn_offset_commit_request import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from odradek.protocol.messages.unregister_controller_request import UnregisterControllerRequest
from odradek.protocol.messages.update_features_request import FeatureUpdateKey, UpdateFeaturesRequest
from odradek.protocol.records import NewRecord, build_batch
from odradek.protocol.struct import ZERO_UUID, Message
from tests.clients.test_replay import ProxyThread
from tests.support.reserved_port import ReservedPort
from tests.support.running_kafka import running_kafka
from tests.support.wire import Wire

RECORDED = Path(__file__).parents[1] / "support" / "recordings" / "kafka-4.4.0"
NODE = 1
PARTITIONS = 50  # default number of partitions of an internal topic
NOBODY = b"nobody has this "
GROUP, TRANSACTION, SHARE = 0, 1, 2
MEMBER, SHARE_MEMBER = "m" * 22, "s" * 22
PATIENCE_S = 60.0
NOT_YET = {14, 15, 16}  # The coordinator is loading, not available, or on another broker.
NOW_MS = 1_700_000_000_000


class Tour:
    """Sends requests through a recorded connection. Requests that only wait for Kafka use another connection, because
    their number varies from run to run."""

    def __init__(self, recorded: str, direct: str) -> None:
        self._wire, self._direct = Wire(recorded, "tour"), Wire(direct, "waits")

    def close(self) -> None:
        self._wire.close()
        self._direct.close()

    def ask(self, request: Message, version: int) -> Any:
        return self._wire.ask(request, version)

    def wait(self, request: Message, version: int, is_met: Callable[[Any], object]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not is_met(self._direct.ask(request, version)):
            assert time.monotonic() < deadline, request
            time.sleep(0.02)

    def make_topic(self, name: str, partitions: int = 1) -> bytes:
        topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
        topic_id: bytes = self.ask(CreateTopicsRequest(topics=[topic], timeout_ms=20_000), 7).topics[0].topic_id
        parts = [ListOffsetsPartition(partition_index=index, timestamp=-1) for index in range(partitions)]
        led = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=name, partitions=parts)])
        self.wait(led, 7, lambda answer: not any(each.error_code for each in answer.topics[0].partitions))
        named = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
        self.wait(named, 12, lambda answer: answer.topics[0].topic_id == topic_id)
        return topic_id

    def delete_topic(self, name: str) -> None:
        self.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=20_000), 6)
        named = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
        gone = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.value
        self.wait(named, 12, lambda answer: answer.topics[0].error_code == gone)

    def find_coordinator(self, key: str, kind: int) -> None:
        """Waits until Kafka finds the coordinator, then records one lookup."""
        request = FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
        self.wait(request, 6, lambda answer: answer.coordinators[0].error_code == 0)
        self.ask(request, 6)

    def load_transactions(self, transactional_id: str) -> None:
        """Waits until the coordinator has loaded this id's partition, by repeating requests for another id in that
        partition."""
        other = same_partition(transactional_id, "warm")
        request = InitProducerIdRequest(transactional_id=other, transaction_timeout_ms=60_000)
        self.wait(request, 5, lambda answer: answer.error_code == 0)

    def load_group(self, group: str, topic: str) -> None:
        """Waits until the group's coordinator knows the topic. From then on, a member of another group in the same
        partition gets partitions of the topic."""
        request = ConsumerGroupHeartbeatRequest(
            group_id=same_partition(group, "warm"),
            member_id="w" * 22,
            rebalance_timeout_ms=60_000,
            subscribed_topic_names=[topic],
            topic_partitions=[],
        )
        self.wait(request, 1, lambda answer: answer.error_code == 0 and answer.assignment.topic_partitions)


def same_partition(key: str, name: str) -> str:
    """Returns another key that belongs to the same partition of an internal topic with 50 partitions."""
    names = (f"{name}-{number}" for number in itertools.count())
    return next(each for each in names if java_hash(each) % PARTITIONS == java_hash(key) % PARTITIONS)


def tour(recorded: str, direct: str) -> None:
    talk = Tour(recorded, direct)
    cluster_id = talk.ask(DescribeClusterRequest(), 2).cluster_id
    expected_broker(talk, cluster_id)
    described_topics(talk)
    fetch_sessions(talk)
    offsets_in_transactions(talk)
    share_groups(talk)
    administration(talk)
    talk.close()


def expected_broker(talk: Tour, cluster_id: str) -> None:
    """Sends ApiVersions with the cluster and node that a client expects (section 1.2)."""
    names: dict[str, Any] = {"client_software_name": "tour", "client_software_version": "1"}
    talk.ask(ApiVersionsRequest(**names), 4)
    for cluster, node in (
        (None, -1),
        (cluster_id, NODE),
        (cluster_id, NODE + 1),
        ("another", NODE),
        ("", NODE),
        (cluster_id, -1),
        (None, NODE),
    ):
        talk.ask(ApiVersionsRequest(cluster_id=cluster, node_id=node, **names), 5)


def described_topics(talk: Tour) -> None:
    first, second = (TopicRequest(name=name) for name in ("described-a", "described-b"))
    for name in ("described-a", "described-b"):
        talk.make_topic(name, 3)
    for request in (
        DescribeTopicPartitionsRequest(topics=[first, second], response_partition_limit=2_000),
        DescribeTopicPartitionsRequest(topics=[first, second], response_partition_limit=4),
        DescribeTopicPartitionsRequest(
            topics=[first, second],
            response_partition_limit=2_000,
            cursor=Cursor(topic_name="described-b", partition_index=1),
        ),
        DescribeTopicPartitionsRequest(topics=[TopicRequest(name="missing")], response_partition_limit=2_000),
    ):
        talk.ask(request, 0)


def produce(talk: Tour, topic_id: bytes, **more: Any) -> Any:
    records = more.pop("records", None) or build_batch([NewRecord(b"k", b"v", NOW_MS)])
    data = [PartitionProduceData(index=0, records=bytes(records))]
    topics = [TopicProduceData(topic_id=topic_id, partition_data=data)]
    return talk.ask(ProduceRequest(topic_data=topics, acks=-1, timeout_ms=20_000, **more), 13)


def fetch_sessions(talk: Tour) -> None:
    """Deletes a topic that an open fetch session contains and creates it again."""
    kept, changed = talk.make_topic("kept"), talk.make_topic("changed")
    for topic_id in (kept, changed, NOBODY):
        produce(talk, topic_id)

    def fetch(session: int, epoch: int, *topics: tuple[bytes, int], forgotten: bytes | None = None) -> Any:
        request = FetchRequest(
            max_wait_ms=1,
            min_bytes=0,
            max_bytes=50_000_000,
            session_id=session,
            session_epoch=epoch,
            topics=[
                FetchTopic(
                    topic_id=topic_id,
                    partitions=[FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1_000_000)],
                )
                for topic_id, offset in topics
            ],
            forgotten_topics_data=[] if forgotten is None else [ForgottenTopic(topic_id=forgotten, partitions=[0])],
        )
        return talk.ask(request, 18)

    session = fetch(0, 0, (kept, 0), (changed, 0)).session_id
    fetch(session, 1, (kept, 1), (changed, 1))
    talk.delete_topic("changed")
    fetch(session, 2)
    again = talk.make_topic("changed")
    fetch(session, 3)
    fetch(session, 4, (again, 0), forgotten=changed)
    produce(talk, again)
    fetch(session, 5)
    fetch(0, 0, (changed, 0))
    fetch(session + 1, 1)
    fetch(session, 9)


def offsets_in_transactions(talk: Tour) -> None:
    """Commits offsets in transactions, by topic id and with member epochs (section 5.2)."""
    topic_id = talk.make_topic("offsets", 2)
    for key, kind in (("g", GROUP), ("no-group", GROUP), ("tx", TRANSACTION)):
        talk.find_coordinator(key, kind)
    talk.load_transactions("tx")
    for group in ("g", "no-group"):
        talk.load_group(group, "offsets")
    started = InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=60_000)
    pair = talk.ask(started, 5)
    fields = {"transactional_id": "tx", "producer_id": pair.producer_id, "producer_epoch": pair.producer_epoch}

    def beat(epoch: int) -> Any:
        request = ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id=MEMBER,
            member_epoch=epoch,
            rebalance_timeout_ms=60_000,
            subscribed_topic_names=["offsets"],
            topic_partitions=[],
        )
        return talk.ask(request, 1)

    def commit(group: str, topic: bytes, partition: int, member: str = "", epoch: int = -1) -> None:
        part = TxnOffsetCommitRequestPartition(partition_index=partition, committed_offset=7, committed_metadata="")
        request = TxnOffsetCommitRequest(
            group_id=group,
            member_id=member,
            generation_id_or_member_epoch=epoch,
            topics=[TxnOffsetCommitRequestTopic(topic_id=topic, partitions=[part])],
            **fields,
        )
        talk.ask(request, 6)

    produce(
        talk,
        topic_id,
        transactional_id="tx",
        records=build_batch(
            [NewRecord(b"k", b"v", NOW_MS)],
            producer_id=pair.producer_id,
            producer_epoch=pair.producer_epoch,
            base_sequence=0,
            is_transactional=True,
        ),
    )
    epoch = beat(0).member_epoch
    for topic, partition, member, at in (
        (topic_id, 0, MEMBER, epoch),
        (topic_id, 0, MEMBER, epoch + 1),
        (topic_id, 99, MEMBER, epoch),
        (NOBODY, 0, MEMBER, epoch),
        (ZERO_UUID, 0, MEMBER, epoch),
        (topic_id, 0, "a stranger", epoch),
    ):
        commit("g", topic, partition, member, at)
    commit("no-group", topic_id, 0, MEMBER, 3)
    commit("no-group", topic_id, 1)
    talk.ask(EndTxnRequest(committed=True, **fields), 5)
    topics = [OffsetFetchRequestTopics(topic_id=topic_id, partition_indexes=[0, 1])]
    groups = [OffsetFetchRequestGroup(group_id=group, topics=topics) for group in ("g", "no-group")]
    stable = OffsetFetchRequest(groups=groups, require_stable=True)
    talk.wait(stable, 10, lambda answer: not any(each.error_code for each in answer.groups[0].topics[0].partitions))
    talk.ask(stable, 10)
    talk.ask(DeleteGroupsRequest(groups_names=["g", "no-group", "never was"]), 3)
    beat(-1)
    talk.ask(DeleteGroupsRequest(groups_names=["g"]), 3)


def share_groups(talk: Tour) -> None:
    """Sends ShareFetch for an unknown topic and requests between brokers with negative epochs (section 5.3)."""
    topic_id = talk.make_topic("shared")
    talk.find_coordinator("shares", GROUP)
    talk.load_group("shares", "shared")
    name = base64.urlsafe_b64encode(topic_id).decode().rstrip("=")
    for group in ("shares", "other"):
        talk.find_coordinator(f"{group}:{name}:0", SHARE)
    joins = ShareGroupHeartbeatRequest(
        group_id="shares", member_id=SHARE_MEMBER, member_epoch=0, subscribed_topic_names=["shared"]
    )
    epoch = talk.ask(joins, 1).member_epoch
    partitions = [SharePartition(partition_index=0)]
    request = ShareFetchRequest(
        group_id="shares",
        member_id=SHARE_MEMBER,
        share_session_epoch=0,
        max_wait_ms=1,
        max_bytes=1_000_000,
        max_records=10,
        batch_size=10,
        topics=[ShareTopic(topic_id=NOBODY, partitions=partitions)],
    )
    talk.ask(request, 2)
    partition = summary.PartitionData(partition=0, leader_epoch=0)
    summed = summary.ReadStateSummaryData(topic_id=topic_id, partitions=[partition])
    talk.wait(
        summary.ReadShareGroupStateSummaryRequest(group_id="other", topics=[summed]),
        1,
        lambda answer: answer.results[0].partitions[0].error_code not in NOT_YET,
    )
    for state_epoch, leader_epoch in ((-1, 0), (0, -1)):
        if state_epoch < 0:
            start = initialization.PartitionData(partition=0, state_epoch=state_epoch, start_offset=0)
            of_topic = initialization.InitializeStateData(topic_id=topic_id, partitions=[start])
            talk.ask(initialization.InitializeShareGroupStateRequest(group_id="other", topics=[of_topic]), 0)
        write = writing.PartitionData(
            partition=0, state_epoch=state_epoch, leader_epoch=leader_epoch, start_offset=0, state_batches=[]
        )
        written = writing.WriteStateData(topic_id=topic_id, partitions=[write])
        talk.ask(writing.WriteShareGroupStateRequest(group_id="other", topics=[written]), 1)
    read = reading.ReadStateData(topic_id=topic_id, partitions=[reading.PartitionData(partition=0, leader_epoch=-1)])
    talk.ask(reading.ReadShareGroupStateRequest(group_id="other", topics=[read]), 0)
    partition = summary.PartitionData(partition=0, leader_epoch=-1)
    summed = summary.ReadStateSummaryData(topic_id=topic_id, partitions=[partition])
    talk.ask(summary.ReadShareGroupStateSummaryRequest(group_id="other", topics=[summed]), 1)
    leaves = ShareGroupHeartbeatRequest(group_id="shares", member_id=SHARE_MEMBER, member_epoch=-1)
    assert epoch > 0
    talk.ask(leaves, 1)


def administration(talk: Tour) -> None:
    for controller_id in (NODE, 9, -1):
        talk.ask(UnregisterControllerRequest(controller_id=controller_id), 0)
    for feature, level, how in (
        ("metadata.version", 32, 2),
        ("metadata.version", 32, 3),
        ("metadata.version", 34, 1),
        ("share.version", 1, 2),
        ("share.version", 1, 1),
        ("share.version", 3, 1),
        ("nobody.version", 1, 1),
    ):
        update = FeatureUpdateKey(feature=feature, max_version_level=level, upgrade_type=how)
        talk.ask(UpdateFeaturesRequest(timeout_ms=10_000, feature_updates=[update], validate_only=True), 2)


def record(path: Path, work: Path) -> None:
    """Records the tour through a proxy in front of Kafka 4.4.0. `work` is a folder for the ready file."""
    reserved = ReservedPort()
    advertised = f"advertised.listeners=PLAINTEXT://127.0.0.1:{reserved.number}"
    with (
        running_kafka(work, "--set", advertised) as kafka,
        ProxyThread(path, reserved.number, int(kafka.rpartition(":")[2])),
    ):
        tour(f"127.0.0.1:{reserved.number}", kafka)


if __name__ == "__main__":
    RECORDED.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        record(RECORDED, Path(folder))
    sys.stdout.write(f"{RECORDED}\n")
