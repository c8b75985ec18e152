"""What Kafka 4.4 changed, row by row of docs/spec/kafka-4.4.md. Kafka 4.3.1 keeps its own answers to the same."""

import time
from collections.abc import Callable
from typing import Any

from odradek.protocol.compression import Compression
from odradek.protocol.messages.api_versions_request import ApiVersionsRequest
from odradek.protocol.messages.create_partitions_request import CreatePartitionsRequest, CreatePartitionsTopic
from odradek.protocol.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from odradek.protocol.messages.list_offsets_request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from odradek.protocol.messages.unregister_controller_request import UnregisterControllerRequest
from odradek.protocol.messages.update_features_request import FeatureUpdateKey, UpdateFeaturesRequest
from odradek.protocol.records import NewRecord, build_batch
from tests.conformance.differential.conversation import Talk
from tests.conformance.differential.records_script import BASE_MS, Producer

NODE = 1
CLUSTER_CHECK_SINCE = 5  # version of ApiVersions
PRODUCE = 9
PATIENCE_S = 20.0
TOPIC, GROUP = 2, 32
UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3


def expected_broker(talk: Talk, version: int) -> None:
    """A1 to A7. Of an answer with APIs the code alone is compared: which APIs there are is another test's concern."""
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
        for software in ("talk", "wrong software"):  # A7: checked first
            request = ApiVersionsRequest(
                client_software_name=software, client_software_version="1", cluster_id=cluster_id, node_id=node_id
            )
            answer = talk.quietly(request, version)
            talk.note(f"{label}, by {software}", (answer.error_code, bool(answer.api_keys), answer.throttle_time_ms))


def unregister_controller(talk: Talk, version: int) -> None:
    """U2, U4."""
    for controller_id in (NODE, 9, -1):
        talk.ask(f"controller {controller_id}", UnregisterControllerRequest(controller_id=controller_id), version)


def levels_of_features(talk: Talk, version: int) -> None:
    """F1, F3 to F5, F7. Only what can be validated without a change."""
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
    """Section 4.2: values at the bounds of the new settings of topics and groups, and of groups' limits."""
    topic, group = f"settings-of-4-4-{version}", f"group-of-4-4-{version}"
    talk.make_topic(topic)

    def ask(kind: int, name: str, value: str) -> None:
        config = AlterableConfig(name=name, config_operation=0, value=value)
        resource = AlterConfigsResource(
            resource_type=kind, resource_name=topic if kind == TOPIC else group, configs=[config]
        )
        request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=True)
        answer = talk.ask(f"{name}={value}", request, version)
        if answer is not None:  # here the words are compared, too
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
    """M4, with a record that is larger than the limit now."""
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

    deadline = time.monotonic() + PATIENCE_S  # Kafka answers before its logs know
    is_known = altered.responses[0].error_code == 0
    while is_known and talk.quietly(request(BASE_MS + 21), version).topics[0].partitions[0].error_code == 0:
        assert time.monotonic() < deadline, "the limit has no effect"
        time.sleep(0.02)
    for since_ms in (0, 10, 20, 21, 22):
        talk.ask(f"since {since_ms}", request(BASE_MS + since_ms), version)
    for special in (-1, -2, -3):
        talk.ask(f"timestamp {special}", request(special), version)


def too_many_partitions(talk: Talk, version: int) -> None:
    """O6."""
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


SCRIPTS: dict[Callable[[Talk, int], None], int] = {
    expected_broker: 18,
    unregister_controller: 94,
    levels_of_features: 57,
    new_settings: 44,
    lowered_size_of_records: 2,
    too_many_partitions: 37,
}
LOWEST = {expected_broker: CLUSTER_CHECK_SINCE, levels_of_features: 1, lowered_size_of_records: 2, new_settings: 1}
