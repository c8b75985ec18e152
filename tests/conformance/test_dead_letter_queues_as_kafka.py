"""Tests the scenarios of docs/spec/dead-letter-queues.md#s5 over sockets, with Kafka 4.4.0 and with Odradek.

Both brokers must meet the same expectations, except in scenario 27 (see L70 of that page).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.broker.configuration.contradictions import STANDARD_AUTHORIZER
from odradek.client import ConfigResource, ConfigType, TopicPartition
from odradek.client.sync import Admin, Producer
from odradek.protocol.acls import ANY_HOST, Operation, Permission, ResourceType
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.create_acls_request import AclCreation, CreateAclsRequest
from odradek.protocol.messages.create_acls_response import CreateAclsResponse
from tests.clients.speakers import wait_for
from tests.conformance.dead_letters_over_sockets import OVER, RawMember, SharedTopic, alter
from tests.support.broker_process import Broker, BrokerProcess, KafkaProcess
from tests.support.dead_letter_scene import MARK, REJECTED, TOO_MANY, Copy
from tests.support.oracle import needs_kafka
from tests.support.wire import Wire

pytestmark = needs_kafka

GAP, ACCEPT, RELEASE, REJECT = range(4)
NONE = ErrorCode.NONE
REJECTION = [(3, 1), OVER]  # delivery states and counts in the order they are stored
GIVEN_UP = [(0, 1), (3, 2), OVER]
CREATES, PREFIX = "errors.deadletterqueue.auto.create.topics.enable", "errors.deadletterqueue.topic.name.prefix"
SETTINGS: dict[str, object] = {
    "num.partitions": 2,
    "offsets.topic.num.partitions": 1,
    "share.coordinator.state.topic.num.partitions": 1,
    "group.share.min.heartbeat.interval.ms": 200,
    "group.share.heartbeat.interval.ms": 200,
    "group.share.assignment.interval.ms": 0,
    "group.share.min.assignment.interval.ms": 0,
    "group.share.min.record.lock.duration.ms": 1_000,
}
MORTAL = SETTINGS | {
    "authorizer.class.name": STANDARD_AUTHORIZER,
    "allow.everyone.if.no.acl.found": "true",
    "default.replication.factor": 3,
}


def new_broker(kind: str, data: Path, settings: dict[str, object]) -> Broker:
    return BrokerProcess(data, settings) if kind == BrokerProcess.name else KafkaProcess(data, settings)


@pytest.fixture(scope="module", params=[BrokerProcess.name, KafkaProcess.name])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def broker(kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with new_broker(kind, tmp_path_factory.mktemp("broker") / "data", SETTINGS) as running:
        yield running


@pytest.fixture(scope="module")
def mortal(kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """Yields a broker that tests may kill. It has ACLs, and a default replication factor that a single node cannot
    provide."""
    with new_broker(kind, tmp_path_factory.mktemp("mortal") / "data", MORTAL) as running:
        yield running


def copies_of(shared: SharedTopic, *offsets: int, count: int = 1, cause: str = REJECTED) -> list[Copy]:
    """Returns the expected copies of these offsets, without key and value."""
    return [Copy(shared.topic, 0, each, shared.group, (count, cause), None, None) for each in offsets]


def holding(shared: SharedTopic, count: int = 10) -> RawMember:
    """Returns a member that has acquired `count` records, all delivered for the first time."""
    shared.produce_many(count)
    member = RawMember(shared)
    assert member.acquire() == [(0, count - 1, 1)]
    return member


def holding_again(shared: SharedTopic, count: int = 10) -> RawMember:
    """Returns a member that has acquired `count` records, all delivered as often as the limit allows."""
    member = holding(shared, count)
    assert member.acknowledge((0, count - 1, RELEASE)) is NONE
    assert member.acquire() == [(0, count - 1, 2)]
    return member


def test_scenarios_001_and_002_rejected_records_are_archiving_then_copied_then_archived(broker: Broker) -> None:
    shared = SharedTopic(broker.bootstrap, "rejected")
    member = holding(shared)
    assert member.acknowledge((0, 3, REJECT)) is NONE
    assert shared.settled(0, 1, 2, 3) == dict.fromkeys(range(4), REJECTION)
    assert shared.copies() == copies_of(shared, 0, 1, 2, 3)
    wait_for("the start offset", lambda: shared.start_and_lag() == (4, 6))


def test_scenario_003_a_record_released_at_the_delivery_limit_is_a_dead_letter(broker: Broker) -> None:
    shared = SharedTopic(broker.bootstrap, "released")
    member = holding_again(shared)
    assert member.acknowledge((0, 4, RELEASE), (5, 9, ACCEPT)) is NONE
    histories = shared.settled(0, 1, 2, 3, 4)
    assert histories == dict(enumerate([GIVEN_UP] * 5 + [[(0, 1), (2, 2)]] * 5))
    assert shared.copies() == copies_of(shared, 0, 1, 2, 3, 4, count=2, cause=TOO_MANY)
    assert member.fetch() == []


def test_scenario_004_a_record_whose_last_lock_expires_is_a_dead_letter(broker: Broker) -> None:
    shared = SharedTopic(broker.bootstrap, "expired")
    shared.configure(share_record_lock_duration_ms=1_000)
    member = holding_again(shared, 3)
    assert shared.settled(0, 1, 2) == dict.fromkeys(range(3), GIVEN_UP)
    assert shared.copies() == copies_of(shared, 0, 1, 2, count=2, cause=TOO_MANY)
    member.leave()


def test_scenario_005_a_record_whose_member_loses_its_connection_is_a_dead_letter(broker: Broker) -> None:
    shared = SharedTopic(broker.bootstrap, "disconnected")
    member = holding_again(shared, 3)
    member.close()
    assert shared.settled(0, 1, 2) == dict.fromkeys(range(3), GIVEN_UP)
    assert shared.copies() == copies_of(shared, 0, 1, 2, count=2, cause=TOO_MANY)


def test_scenario_006_key_and_value_are_copied_where_the_group_asks_but_not_headers(broker: Broker) -> None:
    shared = SharedTopic(broker.bootstrap, "whole")
    shared.configure(errors_deadletterqueue_copy_record_enable="true")
    shared.produce(b"one", b"two", b"three")
    member = RawMember(shared)
    member.acquire()
    assert member.acknowledge((0, 2, REJECT)) is NONE
    shared.settled(0, 1, 2)
    assert [(each.key, each.value) for each in shared.copies()] == [(b"k", b"one"), (b"k", b"two"), (b"k", b"three")]
    assert shared.batch_sizes() == [3]


def reject_two(shared: SharedTopic) -> None:
    """Rejects two records. The stored states must be the same as if the records had been copied."""
    member = holding(shared)
    assert member.acknowledge((0, 1, REJECT)) is NONE
    assert shared.settled(0, 1) == dict.fromkeys(range(2), REJECTION)


def test_scenario_007_without_a_topic_and_without_its_creation_they_are_archived_uncopied(broker: Broker) -> None:
    shared = SharedTopic(broker.bootstrap, "missing", has_queue=False)
    reject_two(shared)
    assert shared.queue not in shared.topics()


def test_scenario_008_records_are_archived_uncopied_if_the_topic_is_not_marked(broker: Broker) -> None:
    shared = SharedTopic(broker.bootstrap, "unmarked", has_queue=False)
    shared.create(shared.queue)
    reject_two(shared)
    assert shared.copies() == []


def test_scenario_009_records_are_archived_uncopied_if_the_topic_lacks_the_prefix(broker: Broker) -> None:
    shared = SharedTopic(broker.bootstrap, "prefix", has_queue=False)
    shared.create("other.a", {MARK: "true"})
    shared.configure(errors_deadletterqueue_topic_name="other.a")
    reject_two(shared)
    assert shared.copies("other.a") == []


def cluster_setting(broker: Broker, name: str, value: str) -> None:
    """Sets a default for the cluster and waits until the broker uses it."""
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        alter(admin, ConfigResource(ConfigType.BROKER, ""), {name: value})
        (node,) = admin.describe_cluster().brokers
        own = ConfigResource(ConfigType.BROKER, str(node.broker_id))
        wait_for(name, lambda: {each.name: each.value for each in admin.describe_configs(own)}[name] == value)


@pytest.fixture
def without_prefix(broker: Broker) -> Iterator[None]:
    cluster_setting(broker, PREFIX, "")
    yield
    cluster_setting(broker, PREFIX, "dlq.")


@pytest.fixture
def creation(broker: Broker) -> Iterator[None]:
    cluster_setting(broker, CREATES, "true")
    yield
    cluster_setting(broker, CREATES, "false")


@pytest.mark.usefixtures("without_prefix")
def test_scenario_010_an_empty_prefix_is_no_rule(broker: Broker) -> None:
    shared = SharedTopic(broker.bootstrap, "any-prefix", has_queue=False)
    shared.create("zz", {MARK: "true"})
    shared.configure(errors_deadletterqueue_topic_name="zz")
    reject_two(shared)
    assert shared.copied("zz") == [0, 1]


@pytest.mark.usefixtures("creation")
def test_scenario_011_a_missing_topic_is_created_where_that_is_allowed(broker: Broker) -> None:
    shared = SharedTopic(broker.bootstrap, "created", partitions=3, has_queue=False)
    members = [RawMember(shared, partitions=3)]
    for index in range(3):
        shared.produce_many(2, partition=index)
        assert members[0].acquire(partition=index) == [(0, 1, 1)]
        assert members[0].acknowledge((0, 1, REJECT), partition=index) is NONE
    for index in range(3):
        assert shared.settled(0, 1, partition=index) == dict.fromkeys(range(2), REJECTION)
    first, second = ([(each.partition, each.offset) for each in shared.copies(partition=index)] for index in (0, 1))
    assert sorted(first) == [(0, 0), (0, 1), (2, 0), (2, 1)]
    assert second == [(1, 0), (1, 1)]
    assert settings_of(broker, shared.queue) == {MARK: "true", "message.timestamp.type": "CreateTime"}


def settings_of(broker: Broker, topic: str) -> dict[str, str | None]:
    """Returns the settings set on the topic itself."""
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        configs = admin.describe_configs(ConfigResource(ConfigType.TOPIC, topic))
    return {each.name: each.value for each in configs if each.source == "DYNAMIC_TOPIC_CONFIG"}


@pytest.mark.usefixtures("creation")
def test_scenario_012_a_topic_that_cannot_be_created_is_not_tried_again(broker: Broker) -> None:
    shared = SharedTopic(broker.bootstrap, "impossible", has_queue=False)
    shared.configure(errors_deadletterqueue_topic_name="dlq.a b")
    reject_two(shared)
    assert "dlq.a b" not in shared.topics()


def test_scenario_013_a_compacted_topic_takes_no_copy_without_a_key(broker: Broker) -> None:
    shared = SharedTopic(broker.bootstrap, "compacted", has_queue=False)
    shared.create(shared.queue, {MARK: "true", "cleanup.policy": "compact"})
    reject_two(shared)
    assert shared.copies() == []


def reject_all(shared: SharedTopic, *sizes: int) -> list[Copy]:
    """Produces and rejects one record of each size, with copying of keys and values enabled. Returns the copies."""
    shared.create(shared.queue, {MARK: "true", "max.message.bytes": "500"})
    shared.configure(errors_deadletterqueue_copy_record_enable="true")
    shared.produce(*[b"v" * size for size in sizes])
    member = RawMember(shared)
    member.acquire()
    assert member.acknowledge((0, len(sizes) - 1, REJECT)) is NONE
    shared.settled(*range(len(sizes)))
    return shared.copies()


def test_scenario_014_copies_are_cut_into_batches_that_the_topic_takes(broker: Broker) -> None:
    shared = SharedTopic(broker.bootstrap, "cut", has_queue=False)
    assert [each.offset for each in reject_all(shared, *[100] * 6)] == list(range(6))
    assert shared.batch_sizes() == [1] * 6


def test_scenario_015_a_record_that_is_too_large_goes_without_key_and_value(broker: Broker) -> None:
    shared = SharedTopic(broker.bootstrap, "too-large", has_queue=False)
    assert [len(each.value or b"") for each in reject_all(shared, 100, 600, 100)] == [100, 0, 100]
    assert [each.value is None for each in shared.copies()] == [False, True, False]


@pytest.mark.usefixtures("without_prefix")
def test_scenario_016_the_queue_may_be_the_topic_itself_and_its_copies_are_delivered(broker: Broker) -> None:
    shared = SharedTopic(broker.bootstrap, "itself", has_queue=False)
    shared.alter(ConfigType.TOPIC, shared.topic, {MARK: "true"})
    shared.configure(errors_deadletterqueue_topic_name=shared.topic)
    member = holding(shared, 2)
    assert member.acknowledge((0, 1, REJECT)) is NONE
    shared.settled(0, 1)
    assert member.acquire() == [(2, 3, 1)]
    copied = [record for _, records in shared.batches(shared.topic) for record in records][2:]
    assert [Copy.of(each) for each in copied] == copies_of(shared, 0, 1)


def test_scenario_017_each_record_of_an_acknowledgement_has_its_own_fate(broker: Broker) -> None:
    shared = SharedTopic(broker.bootstrap, "mixed")
    member = holding(shared, 6)
    assert member.acknowledge((0, 5, [GAP, REJECT, ACCEPT, RELEASE, REJECT, GAP])) is NONE
    gap, accepted, released = [OVER], [(2, 1)], [(0, 1)]
    fates = [gap, REJECTION, accepted, released, REJECTION, gap]
    assert shared.settled(1, 4) == dict(enumerate(fates))
    assert shared.copied() == [1, 4]


def test_scenario_018_one_replica_is_all_that_a_topic_can_ask_for(broker: Broker) -> None:
    shared = SharedTopic(broker.bootstrap, "replicas", has_queue=False)
    shared.create(shared.queue, {MARK: "true", "min.insync.replicas": "2"})
    reject_two(shared)
    assert shared.copied() == [0, 1]


def holding_four_of_eight(shared: SharedTopic) -> RawMember:
    """Writes two batches of four records. Returns a member that has acquired the first batch."""
    shared.produce(b"0", b"1", b"2", b"3")
    shared.produce(b"4", b"5", b"6", b"7")
    member = RawMember(shared)
    assert member.acquire(max_records=4) == [(0, 3, 1)]
    return member


def test_scenario_019_records_below_a_raised_log_start_that_are_still_held_are_dead_letters(broker: Broker) -> None:
    shared = SharedTopic(broker.bootstrap, "below")
    member = holding_four_of_eight(shared)
    shared.delete_records_before(4)
    assert member.acknowledge((0, 3, REJECT)) is NONE
    wait_for("four copies", lambda: shared.copied() == [0, 1, 2, 3])


def test_scenario_020_no_copy_has_key_or_value_if_the_first_record_is_deleted(broker: Broker) -> None:
    shared = SharedTopic(broker.bootstrap, "partly-below")
    shared.configure(errors_deadletterqueue_copy_record_enable="true")
    member = holding_four_of_eight(shared)
    shared.delete_records_before(2)
    assert member.acknowledge((0, 3, REJECT)) is NONE
    wait_for("four copies", lambda: shared.copies() == copies_of(shared, 0, 1, 2, 3))


STORED = [(0, 1, 3, 1), (2, 3, 3, 2), (4, 5, 0, 1)]


def first_fetch_after_storing(shared: SharedTopic) -> RawMember:
    shared.produce_many(6)
    member = RawMember(shared)
    shared.store(0, *STORED)
    assert member.acquire() == [(4, 5, 2)]
    histories = shared.settled(0, 1, 2, 3)
    assert [histories[offset] for offset in range(4)] == [REJECTION] * 2 + [[(3, 2), OVER]] * 2
    return member


def test_scenario_021_records_stored_as_archiving_are_copied_when_the_share_partition_is_loaded(broker: Broker) -> None:
    shared = SharedTopic(broker.bootstrap, "loaded")
    member = first_fetch_after_storing(shared)
    assert shared.copies() == copies_of(shared, 0, 1) + copies_of(shared, 2, 3, count=2, cause=TOO_MANY)
    member.leave()


def test_scenario_022_loaded_records_are_archived_uncopied_if_the_group_names_no_topic_any_more(broker: Broker) -> None:
    shared = SharedTopic(broker.bootstrap, "unnamed")
    shared.configure(errors_deadletterqueue_topic_name="")
    member = first_fetch_after_storing(shared)
    assert shared.copies() == []
    member.leave()


def test_scenario_023_after_a_crash_between_the_writes_the_first_fetch_copies_the_records(mortal: Broker) -> None:
    shared = SharedTopic(mortal.bootstrap, "crashed")
    shared.produce_many(10)
    member = RawMember(shared)
    shared.store(0, (0, 1, 3, 1))
    member.close()
    mortal.kill9()
    mortal.start()
    member = RawMember(shared, "B")
    assert shared.copies() == [], "joining loads no share partition"
    assert member.acquire() == [(2, 9, 1)]
    assert shared.settled(0, 1) == dict.fromkeys(range(2), REJECTION)
    assert shared.copies() == copies_of(shared, 0, 1)


def test_scenario_024_the_topic_decides_about_timestamps_and_compression(broker: Broker) -> None:
    shared = SharedTopic(broker.bootstrap, "zstd", has_queue=False)
    configs = {MARK: "true", "compression.type": "zstd", "message.timestamp.type": "LogAppendTime"}
    shared.create(shared.queue, configs)
    reject_two(shared)
    assert {(header.attributes, header.producer_id) for header, _ in shared.batches(shared.queue)} == {(12, -1)}
    assert shared.copied() == [0, 1]


@pytest.mark.usefixtures("creation")
def test_scenario_025_a_topic_that_was_deleted_is_created_again(broker: Broker) -> None:
    shared = SharedTopic(broker.bootstrap, "deleted", has_queue=False)
    member = holding(shared)
    assert member.acknowledge((0, 0, REJECT)) is NONE
    shared.settled(0)
    assert shared.copied() == [0]
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        admin.delete_topics([shared.queue])
    wait_for("the deletion", lambda: shared.queue not in shared.topics())
    assert member.acknowledge((1, 1, REJECT)) is NONE
    shared.settled(1)
    assert shared.copied() == [1]


def test_scenario_026_at_share_version_1_a_rejected_record_is_archived_at_once(broker: Broker) -> None:
    shared = SharedTopic(broker.bootstrap, "lowered")
    member = holding(shared)
    shared.set_share_version(1)
    try:
        assert member.acknowledge((0, 1, REJECT)) is NONE
        assert shared.settled(0, 1) == {0: [OVER], 1: [OVER]}
    finally:
        shared.set_share_version(2)
    assert member.acknowledge((2, 2, REJECT)) is NONE
    assert shared.settled(2)[2] == REJECTION
    assert shared.copied() == [2]


def test_scenario_027_kafka_needs_the_right_to_write_into_the_topic_and_this_broker_does_not(mortal: Broker) -> None:
    shared = SharedTopic(mortal.bootstrap, "denied")
    allow(mortal, shared.queue, "User:admin", Operation.WRITE)
    allow(mortal, shared.queue, "User:ANONYMOUS", Operation.READ)
    reject_two(shared)
    assert shared.copied() == ([0, 1] if mortal.name == BrokerProcess.name else [])


def allow(broker: Broker, topic: str, principal: str, operation: Operation) -> None:
    acl = AclCreation(
        resource_type=ResourceType.TOPIC.value,
        resource_name=topic,
        principal=principal,
        host=ANY_HOST,
        operation=operation.value,
        permission_type=Permission.ALLOW.value,
    )
    with Wire(broker.bootstrap) as wire:
        (result,) = wire.ask(CreateAclsRequest(creations=[acl]), 3, CreateAclsResponse).results
    assert result.error_code == 0, result.error_message


def test_scenario_028_copies_of_two_batches_are_in_the_order_of_their_offsets(broker: Broker) -> None:
    shared = SharedTopic(broker.bootstrap, "two-batches")
    shared.produce_many(3)
    shared.produce_many(3)
    member = RawMember(shared)
    assert member.acquire()[-1][1] == 5
    assert member.acknowledge((0, 0, REJECT), (1, 4, [REJECT] * 4), (5, 5, REJECT)) is NONE
    shared.settled(*range(6))
    assert shared.copied() == list(range(6))


def test_scenario_029_a_topic_that_cannot_have_so_many_replicas_is_not_tried_again(mortal: Broker) -> None:
    shared = SharedTopic(mortal.bootstrap, "replicated", has_queue=False)
    cluster_setting(mortal, CREATES, "true")
    reject_two(shared)
    assert shared.queue not in shared.topics()


def test_scenario_030_a_topic_in_which_not_even_the_headers_fit_gets_no_copy(broker: Broker) -> None:
    shared = SharedTopic(broker.bootstrap, "tiny", has_queue=False)
    shared.create(shared.queue, {MARK: "true", "max.message.bytes": "100"})
    reject_two(shared)
    assert shared.copies() == []


def test_scenario_031_the_topic_setting_of_the_group_is_read_for_each_event(broker: Broker) -> None:
    shared = SharedTopic(broker.bootstrap, "renamed")
    member = holding(shared)
    shared.configure(errors_deadletterqueue_topic_name="")
    unnamed = rejected_until(shared, member, range(5), [OVER])
    shared.configure(errors_deadletterqueue_topic_name=shared.queue)
    named = rejected_until(shared, member, range(unnamed + 1, 10), REJECTION)
    assert unnamed not in shared.copied()
    assert named in shared.copied()


def rejected_until(shared: SharedTopic, member: RawMember, offsets: range, expected: list[tuple[int, int]]) -> int:
    """Rejects records one by one until one has the expected history and returns its offset. Several records may be
    needed, because Kafka applies a setting a moment after it has confirmed the change."""
    for offset in offsets:
        assert member.acknowledge((offset, offset, REJECT)) is NONE
        if shared.settled(offset)[offset] == expected:
            return offset
    raise AssertionError(f"no record came to {expected}")


def test_scenario_032_records_below_a_raised_log_start_are_no_dead_letters(broker: Broker) -> None:
    shared = SharedTopic(broker.bootstrap, "passed")
    member = holding_four_of_eight(shared)
    assert member.acknowledge((0, 3, RELEASE)) is NONE
    shared.delete_records_before(4)
    assert member.acquire() == [(4, 7, 1)]
    assert member.acknowledge((4, 7, ACCEPT)) is NONE
    assert {state for history in shared.histories().values() for state, _ in history} <= {0, 2, 4}
    assert shared.copies() == []


def test_scenario_032_records_below_an_altered_start_offset_are_no_dead_letters(broker: Broker) -> None:
    shared = SharedTopic(broker.bootstrap, "altered")
    member = holding(shared)
    assert member.acknowledge((0, 9, RELEASE)) is NONE
    member.leave()
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        admin.alter_share_group_offsets(shared.group, {TopicPartition(shared.topic, 0): 3})
    member = RawMember(shared, "B")
    assert member.acquire()[0][0] == 3
    assert shared.copies() == []


def test_scenario_033_records_of_an_aborted_transaction_are_no_dead_letters(broker: Broker) -> None:
    shared = SharedTopic(broker.bootstrap, "aborted")
    shared.configure(share_isolation_level="read_committed")
    with Producer(bootstrap_servers=broker.bootstrap, transactional_id="aborts") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        for value in (b"0", b"1", b"2"):
            producer.send(shared.topic, value)
        producer.flush()
        producer.abort_transaction()
    wait_for("the marker", lambda: [header.base_offset for header, _ in shared.batches(shared.topic)][-1:] == [3])
    shared.produce(b"4")
    member = RawMember(shared)
    assert member.acquire() == [(3, 4, 1)]
    assert shared.copies() == []
