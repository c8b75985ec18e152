"""Scripts for the changes in Kafka 4.4. They cite rows of docs/spec/kafka-4.4.md. Kafka 4.3.1 answers some of the
requests differently."""

import time
from collections.abc import Callable
from typing import Any

from odradek.protocol.compression import Compression
from odradek.protocol.messages.api_versions_request import ApiVersionsRequest
from odradek.protocol.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from odradek.protocol.messages.create_partitions_request import CreatePartitionsRequest, CreatePartitionsTopic
from odradek.protocol.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from odradek.protocol.messages.list_offsets_request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from odradek.protocol.messages.share_group_describe_request import ShareGroupDescribeRequest
from odradek.protocol.messages.share_group_heartbeat_request import ShareGroupHeartbeatRequest
from odradek.protocol.messages.txn_offset_commit_request import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from odradek.protocol.messages.unregister_controller_request import UnregisterControllerRequest
from odradek.protocol.messages.update_features_request import FeatureUpdateKey, UpdateFeaturesRequest
from odradek.protocol.records import NewRecord, build_batch
from odradek.protocol.struct import ZERO_UUID
from tests.conformance.differential.consumer_group_scene import Scene as ConsumerScene
from tests.conformance.differential.conversation import Talk
from tests.conformance.differential.records_script import BASE_MS, Producer
from tests.conformance.differential.share_group_scene import ShareScene
from tests.conformance.differential.share_state_scene import StateScene
from tests.conformance.differential.transactional_client import Client
from tests.conformance.differential.transactional_partitions_script import FIRST_VERSION_WITH_IDS
from tests.conformance.differential.transactions_script import wait_for_coordinators

NODE = 1
CLUSTER_CHECK_SINCE = 5  # first version of ApiVersions with an expected cluster id
PRODUCE = 9
PATIENCE_S = 20.0
TOPIC, GROUP = 2, 32
SHARE_FETCH = 2  # version of ShareFetch
WRITE_STATE = 85
UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3


def expected_broker(talk: Talk, version: int) -> None:
    """Sends ApiVersions with an expected cluster and node (A1 to A7). Records only whether the response lists any APIs,
    because another test compares these."""
    if version < CLUSTER_CHECK_SINCE:
        return
    cluster = talk.place.cluster_id
    for label, cluster_id, node_id in (
        ("A1: nobody", None, -1),
        ("A2: this node", cluster, NODE),
        ("A3: another node", cluster, NODE + 1),
        ("A3: node -2", cluster, -2),
        ("A4: another cluster", "another", NODE),
        ("A4: no name of a cluster", "", NODE),
        ("A5: a cluster and no node", cluster, -1),
        ("A5: an empty cluster and no node", "", -1),
        ("A6: a node and no cluster", None, NODE),
    ):
        for software in ("talk", "wrong software"):  # A7: The broker checks the software name first.
            request = ApiVersionsRequest(
                client_software_name=software, client_software_version="1", cluster_id=cluster_id, node_id=node_id
            )
            answer = talk.quietly(request, version)
            talk.note(f"{label}, by {software}", (answer.error_code, bool(answer.api_keys), answer.throttle_time_ms))


def unregister_controller(talk: Talk, version: int) -> None:
    """Tries to unregister the active controller and two unknown controllers (U2, U4)."""
    for controller_id in (NODE, 9, -1):
        talk.ask(f"controller {controller_id}", UnregisterControllerRequest(controller_id=controller_id), version)


def levels_of_features(talk: Talk, version: int) -> None:
    """Validates feature level changes without applying them (F1, F3 to F5, F7)."""
    if version == 0:
        return

    def ask(feature: str, level: int, how: int) -> None:
        update = FeatureUpdateKey(feature=feature, max_version_level=level, upgrade_type=how)
        request = UpdateFeaturesRequest(timeout_ms=10_000, feature_updates=[update], validate_only=True)
        talk.ask(f"{feature} to {level}, type {how}", request, version)

    for how in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        for level in (6, 29, 30, 31, 32, 33, 34):
            ask("metadata.version", level, how)
        for level in (0, 1, 2, 3):
            ask("share.version", level, how)
        ask("odradek.version", 1, how)


def new_settings(talk: Talk, version: int) -> None:
    """Validates values at the bounds of the new topic and group settings, and of group settings with broker-side limits
    (section 4.2)."""
    topic, group = f"settings-of-4-4-{version}", f"group-of-4-4-{version}"
    talk.make_topic(topic)

    def ask(kind: int, name: str, value: str) -> None:
        config = AlterableConfig(name=name, config_operation=0, value=value)
        resource = AlterConfigsResource(
            resource_type=kind, resource_name=topic if kind == TOPIC else group, configs=[config]
        )
        request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=True)
        answer = talk.ask(f"{name}={value}", request, version)
        if answer is not None:  # This script compares error messages too.
            talk.note(f"{name}={value}, the words", answer.responses[0].error_message)

    for value in ("0", "1", "2147483639", "2147483640", "x"):
        ask(TOPIC, "max.decompressed.message.bytes", value)
    for value in ("-2", "-1", "0"):
        ask(TOPIC, "remote.copy.lag.ms", value)
        ask(TOPIC, "remote.copy.lag.bytes", value)
    ask(TOPIC, "errors.deadletterqueue.group.enable", "yes")
    for name, values in (
        ("errors.deadletterqueue.topic.name", ("__x", "a b", "")),
        ("errors.deadletterqueue.copy.record.enable", ("yes", "true")),
        ("streams.assignor.name", ("uniform", "sticky", "")),
        ("streams.rack.aware.assignment.tags", ("a,a", "a,b", "a,,b", "")),
        ("streams.num.warmup.replicas", ("21", "20")),
        ("streams.num.standby.replicas", ("3", "2")),
        ("streams.task.offset.interval.ms", ("14999", "15000")),
        ("streams.acceptable.recovery.lag", ("-1", "0")),
        ("consumer.assignor.offload.enable", ("false",)),
        ("consumer.session.timeout.ms", ("44999", "60001", "50000")),
        ("consumer.assignment.interval.ms", ("15001",)),
        ("share.delivery.count.limit", ("1", "11")),
        ("share.record.lock.duration.ms", ("14999", "60001")),
    ):
        for value in values:
            ask(GROUP, name, value)


def lowered_size_of_records(talk: Talk, version: int) -> None:
    """Searches a log by timestamp after `max.decompressed.message.bytes` has been lowered below the size of a stored
    record (M4)."""
    to = Producer(talk, PRODUCE)
    name = to.make_topic(f"lowered-{version}")
    for values in ((b"v",), (b"v", bytes(2_000)), (b"v",)):
        records = [NewRecord(b"k", value, BASE_MS + 10 * len(values) + at) for at, value in enumerate(values)]
        talk.quietly(to.request(to.topic(name, p0=bytes(build_batch(records, compression=Compression.GZIP)))), PRODUCE)
    limit = AlterableConfig(name="max.decompressed.message.bytes", config_operation=0, value="1000")
    resource = AlterConfigsResource(resource_type=TOPIC, resource_name=name, configs=[limit])
    altered = talk.quietly(IncrementalAlterConfigsRequest(resources=[resource]), 1)

    def request(at_ms: int) -> ListOffsetsRequest:
        partition = ListOffsetsPartition(partition_index=0, timestamp=at_ms)
        return ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=name, partitions=[partition])])

    deadline = time.monotonic() + PATIENCE_S  # Kafka responds before its logs apply the limit.
    is_known = altered.responses[0].error_code == 0
    while is_known and talk.quietly(request(BASE_MS + 21), version).topics[0].partitions[0].error_code == 0:
        assert time.monotonic() < deadline, "the limit has no effect"
        time.sleep(0.02)
    for since_ms in (0, 10, 20, 21, 22):
        talk.ask(f"since {since_ms}", request(BASE_MS + since_ms), version)
    for special in (-1, -2, -3):
        talk.ask(f"timestamp {special}", request(special), version)


def too_many_partitions(talk: Talk, version: int) -> None:
    """Tries to add more than 10,000 partitions in one request (O6)."""
    names = [f"many-{at}-{version}" for at in range(2)]
    for name in names:
        talk.make_topic(name)

    def ask(label: str, *wishes: tuple[str, int]) -> Any:
        topics = [CreatePartitionsTopic(name=name, count=count, assignments=None) for name, count in wishes]
        talk.ask(label, CreatePartitionsRequest(topics=topics, timeout_ms=20_000, validate_only=True), version)

    first, second = names
    ask("10,000", (first, 10_001))
    ask("10,001", (first, 10_002))
    ask("in two topics", (first, 6_001), (second, 4_002))
    ask("and an unknown one", (first, 10_002), ("nobody-made-this", 3))
    ask("of an unknown one", ("nobody-made-this", 20_000), (first, 3))
    ask("one that does not grow", (first, 1), (second, 20_000))
    ask("one twice", (first, 20_000), (first, 20_000), (second, 3))


def finalised_levels(talk: Talk, version: int) -> None:
    """Compares the finalised levels of a new cluster, except for features that only Odradek has (F2)."""
    request = ApiVersionsRequest(client_software_name="talk", client_software_version="1")
    answer = talk.quietly(request, version)
    levels = {
        each.name: each.max_version_level for each in answer.finalized_features if not each.name.startswith("odradek.")
    }
    talk.note("the finalised levels", levels)


def emptied_consumer_group(talk: Talk, version: int) -> None:
    """Makes a member join an emptied group before the assignment interval has elapsed (C2)."""
    scene = ConsumerScene(talk, version, "emptied")
    between = AlterableConfig(name="consumer.assignment.interval.ms", config_operation=0, value="15000")
    resource = AlterConfigsResource(resource_type=GROUP, resource_name=scene.group, configs=[between])
    assert talk.quietly(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses[0].error_code == 0
    scene.join("A joins", "A")
    scene.beat("A leaves", "A", -1)
    scene.describe("empty")
    scene.join("B joins", "B")
    scene.describe("with B")


def changed_assignor(talk: Talk, version: int) -> None:
    """Changes the server assignor that the only member requests, which in turn changes the group's assignor (C3)."""
    scene = ConsumerScene(talk, version, "assignor")
    scene.join("joins", "A", server_assignor="uniform")
    for assignor in ("range", "range", "uniform"):
        scene.beat(f"wishes {assignor}", "A", server_assignor=assignor)
        scene.beat(f"after the wish for {assignor}", "A", owned=scene.owns(0, 1, 2, 3, 4, 5))
        scene.describe(f"with {assignor}")


def released_instance(talk: Talk, version: int) -> None:
    """Gives a member a second instance id, then makes another member join with the first one (C4)."""
    scene = ConsumerScene(talk, version, "released")
    scene.join("takes the first", "A", instance_id="first")
    scene.join("takes the second", "A", instance_id="second")
    request = ConsumerGroupHeartbeatRequest(
        group_id=scene.group,
        member_id="B",
        instance_id="first",
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=[scene.topic],
        topic_partitions=[],
    )
    talk.note("C4: another takes the first instance id", talk.quietly(request, version).error_code)


def member_epochs_of_producers(talk: Talk, version: int) -> None:
    """Commits offsets in a transaction with various member epochs, in a consumer group and in a classic group (T3 to
    T7)."""
    wait_for_coordinators(talk)
    scene = ConsumerScene(talk, 1, f"producers-{version}")
    client = Client(talk, f"member-epochs-{version}").init().begin_offsets(scene.group)

    def ask(label: str, member: str, epoch: int, *indexes: int, group: str = scene.group) -> None:
        parts = [TxnOffsetCommitRequestPartition(partition_index=each, committed_offset=7) for each in indexes]
        by_id = version >= FIRST_VERSION_WITH_IDS
        topic = TxnOffsetCommitRequestTopic(
            name="" if by_id else scene.topic, topic_id=scene.topic_id if by_id else ZERO_UUID, partitions=parts
        )
        request = TxnOffsetCommitRequest(
            group_id=group, member_id=member, generation_id_or_member_epoch=epoch, topics=[topic], **client.pair
        )
        talk.ask(label, request, version)

    scene.join("A joins", "A")
    scene.join("C joins", "C")
    scene.beat("A is told", "A")
    scene.beat("A has given up", "A", owned=scene.owns(0, 1, 2))
    scene.describe("two members")
    for epoch in range(6):
        ask(f"T3 and T5: A of epoch {epoch}, which it holds", "A", epoch, 0)
        ask(f"T4: A of epoch {epoch}, which it gave up", "A", epoch, 5)
        ask(f"A of epoch {epoch}, both", "A", epoch, 0, 5)
    ask("T7: a stranger", "nobody", 3, 0)
    classic = ConsumerScene(talk, 1, f"classic-{version}")
    client.begin_offsets(classic.group)
    first = classic.classic_join("no member id yet")
    joined = classic.classic_join("joins", first.member_id)
    classic.classic_sync("alone", joined.member_id, joined.generation_id)
    for generation in (0, 1, 2):
        ask(f"T6: generation {generation}", joined.member_id, generation, 0, group=classic.group)
    ask("T7: a stranger in a classic group", "nobody", 1, 0, group=classic.group)
    client.end()


def emptied_share_group(talk: Talk, version: int) -> None:
    """Compares how far the assignment epoch lags behind the group epoch after the last member has left (S1)."""
    scene = ShareScene(talk, SHARE_FETCH, f"emptied-{version}")
    scene.begin()
    scene.leave()
    (group,) = talk.quietly(ShareGroupDescribeRequest(group_ids=[scene.group]), version).groups
    talk.note("empty", (group.group_state, group.group_epoch - group.assignment_epoch))


def added_partition(talk: Talk, version: int) -> None:
    """Compares the start offset of a partition added to a topic that the group subscribes to (S2)."""
    scene = ShareScene(talk, SHARE_FETCH, f"added-{version}")
    scene.configure("share.auto.offset.reset", "latest")
    scene.begin()
    more = CreatePartitionsTopic(name=scene.topic, count=2, assignments=None)
    talk.quietly(CreatePartitionsRequest(topics=[more], timeout_ms=20_000), 3)
    talk.wait_until_led(scene.topic, 2)
    deadline = time.monotonic() + PATIENCE_S
    epoch, owned = 0, 0
    while owned < 2:
        assert time.monotonic() < deadline, "the partition is assigned to nobody"
        request = ShareGroupHeartbeatRequest(
            group_id=scene.group, member_id="A", member_epoch=epoch, subscribed_topic_names=[scene.topic]
        )
        answer = talk.quietly(request, 1)
        if answer.error_code == 0:
            epoch = answer.member_epoch
            if answer.assignment is not None:
                owned = sum(len(each.partitions) for each in answer.assignment.topic_partitions)
        time.sleep(0.1)
    scene.describe_offsets("where they begin", {scene.topic: [0, 1]})


def unchecked_state(talk: Talk, version: int) -> None:
    """Writes invalid states and counts (S10), then start offsets and delivery-complete counts that go up and down (S8
    and S9)."""
    scene = StateScene(talk, "unchecked", WRITE_STATE, version)
    scene.initialize("initialized", 1, 0)
    scene.write("states and counts that are none", 1, 0, 0, (0, 0, 9, -1), (1, 1, -1, 1), (2, 2, 3, 2))
    scene.stored("states and counts that are none")
    scene.write("ends before it begins", 1, 0, 0, (9, 8, 0, 1))
    if version >= 1:
        for offset, complete in ((5, 4), (5, 2), (-1, 9), (3, 7), (8, 1)):
            scene.write(f"{complete} from {offset}", 1, 0, offset, complete=complete)
            scene.summarize(f"{complete} from {offset}", 0)


SCRIPTS: dict[Callable[[Talk, int], None], int] = {
    expected_broker: 18,
    unregister_controller: 94,
    levels_of_features: 57,
    new_settings: 44,
    lowered_size_of_records: 2,
    too_many_partitions: 37,
    finalised_levels: 18,
    **dict.fromkeys((emptied_consumer_group, changed_assignor, released_instance), 68),
    member_epochs_of_producers: 28,
    **dict.fromkeys((emptied_share_group, added_partition), 77),
    unchecked_state: WRITE_STATE,
}
LOWEST = {
    expected_broker: CLUSTER_CHECK_SINCE,
    levels_of_features: 1,
    lowered_size_of_records: 2,
    new_settings: 1,
    finalised_levels: 3,
    member_epochs_of_producers: 3,
}
