"""Tests the records that streams groups write to `__consumer_offsets`, and the groups' settings:
docs/spec/streams-groups.md#s11, #s13-7."""

import pytest

from odradek.broker.groups.common.group import CoordinatorRecord
from odradek.broker.groups.records import decode_record
from odradek.protocol.batch_header import batches
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from odradek.protocol.messages.list_offsets_request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from odradek.protocol.messages.streams_group_heartbeat_request import KeyValue
from odradek.protocol.messages.streams_group_topology_description_update_request import (
    StreamsGroupTopologyDescriptionUpdateRequest,
)
from odradek.protocol.records import records_of
from odradek.protocol.topic_partition import GROUP_OFFSETS
from tests.conformance.streams_scene import (
    ALL,
    LATEST,
    MISSING_TAGS,
    Scene,
    revoke_tasks,
    subtopology,
    topology,
)
from tests.conformance.test_streams_group_offsets import classic_join, commit
from tests.support.oracle import needs_kafka

pytestmark = needs_kafka

COMMIT, CLASSIC = 1, 2
METADATA, MEMBER, TARGET, TARGET_MEMBER, CURRENT, TOPOLOGY = 17, 19, 20, 21, 22, 23
FIRST_JOIN = [MEMBER, TOPOLOGY, METADATA, TARGET_MEMBER, TARGET, CURRENT]
LATEST_OFFSET = -1


class Log:
    """Reads the records that the scene's group has written since the creation of this object."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._offset = self._end()

    def _end(self) -> int:
        partition = ListOffsetsPartition(partition_index=0, timestamp=LATEST_OFFSET)
        request = ListOffsetsRequest(topics=[ListOffsetsTopic(name=GROUP_OFFSETS, partitions=[partition])])
        found: int = self._scene.talk.quietly(request, 7).topics[0].partitions[0].offset
        return found

    def written(self) -> list[int]:
        """Returns the types of the records since the last call, as negative numbers for tombstones."""
        numbers = [(each.key.API_KEY, each.value) for each in self.records()]
        return [number if value is not None else -number for number, value in numbers if number is not None]

    def records(self) -> list[CoordinatorRecord]:
        """Returns the records since the last call."""
        end = self._end()
        found: list[CoordinatorRecord] = []
        while self._offset < end:
            partition = FetchPartition(partition=0, fetch_offset=self._offset, partition_max_bytes=1 << 20)
            request = FetchRequest(
                max_wait_ms=100, min_bytes=1, topics=[FetchTopic(topic=GROUP_OFFSETS, partitions=[partition])]
            )
            data = self._scene.talk.quietly(request, 12).responses[0].partitions[0].records
            whole = b"".join(bytes(each) for each in data) if isinstance(data, list) else bytes(data or b"")
            for position, _ in batches(whole):
                for record in records_of(whole, position):
                    if record.offset < self._offset:
                        continue
                    self._offset = record.offset + 1
                    decoded = decode_record(record.key, record.value)
                    assert decoded is not None
                    group = getattr(decoded.key, "group_id", None) or getattr(decoded.key, "group", None)
                    if group == self._scene.group:
                        found.append(decoded)
        return found


def test_scenario_101_members_that_join_and_leave_write_the_same_records(scene: Scene) -> None:
    log = Log(scene)
    a, c = scene.member("a"), scene.member("c")
    a.join()
    assert log.written() == FIRST_JOIN
    c.join()
    assert log.written() == [MEMBER, METADATA, TARGET_MEMBER, TARGET_MEMBER, TARGET, CURRENT]
    a.beat()
    assert log.written() == [CURRENT]
    a.beat()
    assert log.written() == []
    c.beat()  # Now the previous epoch of c equals its member epoch.
    assert log.written() == [CURRENT]
    a.beat()
    c.beat()
    assert log.written() == []
    a.beat({"0": [0, 1]})
    c.beat()
    assert log.written() == [CURRENT, CURRENT]
    a.beat(shutdown_application=True)
    assert log.written() == []
    c.leave()
    assert log.written() == [-CURRENT, -TARGET_MEMBER, -MEMBER, METADATA]
    a.leave()
    assert log.written() == [-CURRENT, -TARGET_MEMBER, -MEMBER, METADATA, TARGET]


def test_scenario_101_created_topics_write_the_same_records(scene: Scene) -> None:
    scene.topology = topology(subtopology(changelogs=[scene.named("c")]))
    log = Log(scene)
    a = scene.member("a")
    a.join()
    assert log.written()[:3] == [MEMBER, TOPOLOGY, METADATA]
    a.beat_for_tasks()
    assert log.written() == [METADATA, TARGET_MEMBER, TARGET, CURRENT]


def test_scenario_101_static_members_write_the_same_records(scene: Scene) -> None:
    a1, a2 = scene.member("a1", instance_id="i", process_id="P"), scene.member("a2", instance_id="i", process_id="P")
    a1.join()
    log = Log(scene)
    a1.leave(-2, instance_id="i")
    assert log.written() == [CURRENT]
    a2.join()
    assert log.written() == [-CURRENT, -TARGET_MEMBER, -MEMBER, MEMBER, TARGET_MEMBER, CURRENT, CURRENT]


def test_scenario_101_a_deleted_group_writes_the_same_records(scene: Scene) -> None:
    a = scene.member("a")
    a.join()
    commit(scene, "a", 2)
    a.leave()
    log = Log(scene)
    assert scene.delete() is ErrorCode.NONE
    assert log.written() == [-COMMIT, -TARGET, -METADATA, -TOPOLOGY]


def test_scenario_101_a_group_that_becomes_classic_and_back_writes_the_same_records(scene: Scene) -> None:
    a = scene.member("a")
    a.join()
    a.leave()
    log = Log(scene)
    assert classic_join(scene, 3) is ErrorCode.NONE
    assert log.written()[:4] == [-TARGET, -METADATA, -TOPOLOGY, CLASSIC]


def test_scenario_104_a_response_contains_the_settings_of_the_group(scene: Scene) -> None:
    scene.configure(acceptable_recovery_lag=77, task_offset_interval_ms=15_000, heartbeat_interval_ms=150)
    a = scene.member("a")
    response = a.join().response
    assert (response.heartbeat_interval_ms, response.acceptable_recovery_lag) == (150, 77)
    assert response.task_offset_interval_ms == 15_000
    earlier = a.beat(version=0).response
    assert (earlier.heartbeat_interval_ms, earlier.acceptable_recovery_lag_legacy) == (150, 0)
    assert earlier.task_offset_interval_ms == 15_000


def test_scenarios_105_and_106_a_member_without_the_required_tags_gets_a_status(scene: Scene) -> None:
    scene.configure(rack_aware_assignment_tags="zone,cluster")
    a = scene.member("a", client_tags=[KeyValue(key="zone", value="1")])
    reply = a.join()
    assert (reply.epoch_and_tasks, reply.statuses) == ((2, ALL), [MISSING_TAGS])
    assert reply.details == [
        (
            "Missing required client tags for rack-aware standby assignment: [cluster]. "
            "Configure them via 'client.tag.<tagKey>' in your Streams config."
        )
    ]
    assert a.beat(version=0).statuses == []
    scene.configure(rack_aware_assignment_tags="zone")
    after = a.beat()
    assert (after.epoch_and_tasks, after.statuses) == ((3, None), [])


def test_scenario_107_the_name_of_the_assignor_makes_no_target(scene: Scene) -> None:
    a = scene.member("a")
    a.join()
    scene.configure(assignor_name="sticky")
    assert a.beat(version=LATEST).epoch_and_tasks == (2, None)
    assert scene.state == ("Stable", 2, 2)


@pytest.mark.parametrize("member", ["a", "", "q"])
def test_scenario_116_no_description_is_requested_without_a_store(scene: Scene, member: str) -> None:
    scene.member("a").join()
    request = StreamsGroupTopologyDescriptionUpdateRequest(group_id=scene.group, member_id=member, topology_epoch=5)
    answer = scene.talk.quietly(request, 0)
    assert ErrorCode(answer.error_code) is ErrorCode.UNSUPPORTED_VERSION
    assert answer.error_message == "The broker has no streams group topology description plugin configured."


def test_a_group_writes_no_records_while_a_member_still_revokes_tasks(scene: Scene) -> None:
    a, c = scene.member("a"), scene.member("c")
    a.join()
    revoke_tasks(scene, a, c)
    log = Log(scene)
    a.beat(ALL)
    a.beat()
    assert log.written() == []
