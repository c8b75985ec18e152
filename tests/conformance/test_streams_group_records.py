"""The records of a streams group in `__consumer_offsets`, as Kafka and we write them during the same life of a group.

Source: docs/spec/streams-groups.md#s11.
"""

from collections.abc import Iterator
from pathlib import Path

from odradek.broker.groups.common.group import CoordinatorRecord
from odradek.broker.groups.records import decode_record, encode_record
from odradek.protocol.batch_header import batches
from odradek.protocol.messages.streams_group_heartbeat_request import Endpoint, KeyValue
from odradek.protocol.messages.streams_group_metadata_value import StreamsGroupMetadataValue
from odradek.protocol.messages.streams_group_target_assignment_metadata_value import (
    StreamsGroupTargetAssignmentMetadataValue,
)
from odradek.protocol.records import records_of
from tests.conformance import streams_scene
from tests.conformance.streams_scene import Scene, internal, subtopology, topology
from tests.support.broker_process import Broker, BrokerProcess, KafkaProcess
from tests.support.oracle import needs_kafka

pytestmark = needs_kafka
GROUP = "life"
TIME, HASH = 1, 1  # in the place of what differs between two brokers: times, and the ids of topics in the hash


def live(broker: Broker) -> None:
    """A life of a group with every kind of record."""
    talk = streams_scene.talk_to(broker)
    scene = Scene(talk, GROUP)
    scene.make_shared_topics()
    scene.make_topic("life-log", 4)
    scene.wait_until_coordinator_knows("life-log", 4)
    scene.topology = topology(
        subtopology("0", ["i4", "i3"], changelogs=[internal("life-log", cleanup_policy="compact")], sinks=["life-out"])
    )
    a = scene.member(
        "a",
        rack_id="r",
        user_endpoint=Endpoint(host="h", port=65_535),
        client_tags=[KeyValue(key="zone", value="z")],
    )
    c = scene.member("c", instance_id="ic")
    a.join()
    c.join()
    a.beat()
    a.beat({"0": [0, 1]})
    c.beat()
    scene.configure(num_standby_replicas=1)
    a.beat()
    c.beat()
    c.leave(-2, instance_id="ic")
    successor = scene.member("c2", instance_id="ic", process_id="process of c")
    successor.join()
    scene.configure(rack_aware_assignment_tags="zone")
    a.beat()
    a.leave()
    successor.beat()
    successor.leave()
    scene.delete()
    talk.close()


def written(broker: Broker) -> Iterator[CoordinatorRecord]:
    for segment in sorted(Path(broker.data_dir).glob("__consumer_offsets-*/*.log")):
        data = segment.read_bytes()
        for position, header in batches(data):
            for record in records_of(data[position : position + header.size_bytes]):
                found = decode_record(record.key, record.value)
                if found is not None and getattr(found.key, "group_id", None) == GROUP:
                    yield found


def as_compared(record: CoordinatorRecord) -> tuple[int, str, bytes | None]:
    value = record.value
    if isinstance(value, StreamsGroupMetadataValue):
        value.metadata_hash = min(value.metadata_hash, HASH) if value.metadata_hash == 0 else HASH
    if isinstance(value, StreamsGroupTargetAssignmentMetadataValue) and value.assignment_timestamp:
        value.assignment_timestamp = TIME
    return record.key.API_KEY, str(record), encode_record(record)[1]


def test_the_same_life_leaves_the_same_records(tmp_path: Path) -> None:
    found = []
    for broker in (
        KafkaProcess(tmp_path / "kafka", streams_scene.SETTINGS, heap="-Xmx512M"),
        BrokerProcess(tmp_path / "odradek", streams_scene.SETTINGS),
    ):
        with broker:
            live(broker)
        found.append([as_compared(each) for each in written(broker)])
    of_kafka, of_ours = found
    assert len(of_kafka) > 30
    assert of_ours == of_kafka
