"""Tests that brokers refuse invalid heartbeats and perform their checks in the documented order:
docs/spec/streams-groups.md#s2-2, #s13-2."""

from typing import Any

import pytest

from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.streams_group_heartbeat_request import (
    Endpoint,
    KeyValue,
    StreamsGroupHeartbeatRequest,
    TaskOffset,
    Topology,
)
from tests.conformance.streams_scene import (
    ALL,
    NOTHING,
    Scene,
    internal,
    subtopology,
    task_ids,
    topology,
    with_two_members,
)
from tests.support.oracle import needs_kafka

pytestmark = needs_kafka

INVALID, TOPOLOGY = ErrorCode.INVALID_REQUEST, ErrorCode.STREAMS_INVALID_TOPOLOGY
JOINS_REFUSED: dict[str, tuple[dict[str, Any], ErrorCode, str]] = {
    "an internal topic": (
        {"topology": topology(subtopology("0", ["__consumer_offsets"]))},
        TOPOLOGY,
        "Use of Kafka internal topics __consumer_offsets in a Kafka Streams topology is prohibited.",
    ),
    "an invalid topic": (
        {"topology": topology(subtopology("0", ["a b"]))},
        TOPOLOGY,
        "Topic names a b are not valid topic names.",
    ),
    "a pattern": (
        {"topology": topology(subtopology("0", ["i4"], patterns=["i.*"]))},
        INVALID,
        "Regular expressions for source topics are not supported yet.",
    ),
    "no member id": ({"member_id": ""}, INVALID, "MemberId can't be empty."),
    "no group id": ({"group_id": ""}, INVALID, "GroupId can't be empty."),
    "a blank instance id": ({"instance_id": " "}, INVALID, "InstanceId can't be empty."),
    "a blank rack": ({"rack_id": ""}, INVALID, "RackId can't be empty."),
    "no rebalance timeout": (
        {"rebalance_timeout_ms": -1},
        INVALID,
        "RebalanceTimeoutMs must be provided in first request.",
    ),
    "no active tasks": ({"active_tasks": None}, INVALID, "ActiveTasks must be empty when (re-)joining."),
    "standby tasks": (
        {"standby_tasks": task_ids({"0": [1]})},
        INVALID,
        "StandbyTasks must be empty when (re-)joining.",
    ),
    "warm-up tasks": ({"warmup_tasks": task_ids(ALL)}, INVALID, "WarmupTasks must be empty when (re-)joining."),
    "no topology": ({"topology": None}, INVALID, "Topology must be non-null when (re-)joining."),
    "a changelog with a number of partitions": (
        {"topology": topology(subtopology("0", ["i4"], changelogs=[internal("c1", 3)]))},
        TOPOLOGY,
        "Changelog topic c1 must have an undefined partition count, but it is set to 3.",
    ),
    "an epoch below -2": (
        {"member_epoch": -3, "topology": None},
        INVALID,
        "MemberEpoch is -3, but must be greater than or equal to -2.",
    ),
    "no instance id at -2": ({"member_epoch": -2, "topology": None}, INVALID, "InstanceId can't be null."),
    "tasks of one role": (
        {"member_epoch": 1, "topology": None, "standby_tasks": None},
        INVALID,
        "If one task-type is non-null, all must be non-null.",
    ),
    "a topology at an epoch": (
        {"member_epoch": 1},
        INVALID,
        "Topology can only be provided when (re-)joining.",
    ),
}
# Kafka answers UNKNOWN_SERVER_ERROR. Odradek returns an error code that identifies the fault.
JOINS_THAT_BREAK: dict[str, tuple[dict[str, Any], ErrorCode]] = {
    "a tag twice": (
        {"client_tags": [KeyValue(key="zone", value="1"), KeyValue(key="zone", value="2")]},
        INVALID,
    ),
    "a subtopology twice": ({"topology": topology(subtopology("0"), subtopology("0"))}, TOPOLOGY),
    "a negative epoch of the topology": ({"topology": topology(subtopology(), epoch=-1)}, TOPOLOGY),
    "a topic out of range": ({"topology": topology(subtopology("0", copartitions=[([7], [])]))}, TOPOLOGY),
}


@pytest.mark.parametrize("case", JOINS_REFUSED)
def test_scenario_023_an_invalid_request_is_refused(scene: Scene, case: str) -> None:
    fields, code, message = JOINS_REFUSED[case]
    assert scene.member("a").join(**fields).refused == (code, message)
    assert scene.described().error_code == ErrorCode.GROUP_ID_NOT_FOUND.value


@pytest.mark.parametrize("case", JOINS_THAT_BREAK)
def test_scenario_023_a_request_that_fails_in_kafka_with_an_unknown_error_is_refused(scene: Scene, case: str) -> None:
    fields, code = JOINS_THAT_BREAK[case]
    assert scene.member("a").join(**fields).code is (ErrorCode.UNKNOWN_SERVER_ERROR if scene.is_kafka else code)
    assert scene.described().error_code == ErrorCode.GROUP_ID_NOT_FOUND.value


def test_scenario_023_tasks_outside_the_topology_are_refused(scene: Scene) -> None:
    a = scene.member("a")
    a.join()
    assert a.beat({"9": [0]}).refused == (INVALID, "Subtopology 9 does not exist in the topology.")
    assert a.beat({"0": [7]}).refused == (
        INVALID,
        "Task 7 for subtopology 0 is invalid. Number of tasks for this subtopology: 4",
    )


@pytest.mark.parametrize("timeout_ms", [0, -5])
def test_scenario_023_a_rebalance_timeout_below_one_is_accepted(scene: Scene, timeout_ms: int) -> None:
    assert scene.member("a").join(rebalance_timeout_ms=timeout_ms).epoch_and_tasks == (2, ALL)


def test_scenario_024_the_member_id_is_checked_before_the_group_id(scene: Scene) -> None:
    assert scene.member("a").join(member_id="", group_id="").refused == (INVALID, "MemberId can't be empty.")


@pytest.mark.parametrize(("epoch", "start"), [(5, "Streams group"), (-1, "Group"), (-2, "Group")])
def test_scenario_025_a_heartbeat_for_an_unknown_group_is_refused(scene: Scene, epoch: int, start: str) -> None:
    reply = scene.member("a").beat(member_epoch=epoch, instance_id="i")
    assert reply.refused == (ErrorCode.GROUP_ID_NOT_FOUND, f"{start} {scene.group} not found.")
    response = reply.response
    assert (response.member_id, response.member_epoch, response.heartbeat_interval_ms) == ("", 0, 0)
    assert (response.task_offset_interval_ms, response.acceptable_recovery_lag) == (0, -1)


@pytest.mark.parametrize("epoch", [5, -1])
def test_scenario_026_a_heartbeat_of_an_unknown_member_is_refused(scene: Scene, epoch: int) -> None:
    scene.member("a").join()
    assert scene.member("q").beat(member_epoch=epoch).refused == (
        ErrorCode.UNKNOWN_MEMBER_ID,
        f"Member q is not a member of group {scene.group}.",
    )


def test_scenario_027_a_heartbeat_with_an_unknown_higher_epoch_is_fenced(scene: Scene) -> None:
    a = scene.member("a")
    a.join()
    assert a.beat(member_epoch=99).refused == (
        ErrorCode.FENCED_MEMBER_EPOCH,
        (
            "The streams group member has a greater member epoch (99) than the one known by the group coordinator (2). "
            "The member must abandon all its partitions and rejoin."
        ),
    )


def test_scenario_028_internal_topics_are_checked_before_invalid_names(scene: Scene) -> None:
    both = topology(subtopology("0", ["a b", "__consumer_offsets"]))
    assert scene.member("a").join(both).refused == (
        TOPOLOGY,
        "Use of Kafka internal topics __consumer_offsets in a Kafka Streams topology is prohibited.",
    )


def test_scenario_029_a_topology_may_have_no_subtopologies(scene: Scene) -> None:
    assert scene.member("a").join(Topology(epoch=0, subtopologies=[])).epoch_and_tasks == (2, NOTHING)
    assert scene.state == ("Stable", 2, 2)


def test_scenario_030_an_endpoint_may_lack_host_and_port(scene: Scene) -> None:
    a = scene.member("a", user_endpoint=Endpoint(host="", port=0))
    assert a.join().epoch_and_tasks == (2, ALL)
    endpoint = a.described().user_endpoint
    assert endpoint is not None
    assert (endpoint.host, endpoint.port) == ("", 0)


def test_scenario_031_version_0_has_no_acceptable_recovery_lag(scene: Scene) -> None:
    a = scene.member("a")
    reply = a.join(version=0)
    assert reply.epoch_and_tasks == (2, ALL)
    assert reply.response.acceptable_recovery_lag_legacy == 0
    assert (reply.response.heartbeat_interval_ms, reply.response.task_offset_interval_ms) == (500, 60_000)
    assert reply.statuses == []
    assert a.beat(version=0).epoch_and_tasks == (2, None)


def test_scenario_031_version_1_returns_intervals_and_the_recovery_lag(scene: Scene) -> None:
    response = scene.member("a").join().response
    assert (response.heartbeat_interval_ms, response.task_offset_interval_ms) == (500, 60_000)
    assert response.acceptable_recovery_lag == 10_000
    assert not response.topology_description_required


def test_reported_offsets_are_shown_and_not_checked(scene: Scene) -> None:
    a = scene.member("a")
    offsets = [TaskOffset(subtopology_id="9", partition=9, offset=-9)]
    a.join(task_offsets=offsets, task_end_offsets=[])
    assert a.described().task_offsets == []  # The heartbeat that creates the group does not store its task offsets.
    assert a.beat(task_offsets=offsets).epoch_and_tasks == (2, None)
    (shown,) = a.described().task_offsets
    assert (shown.subtopology_id, shown.partition, shown.offset) == ("9", 9, -9)


def test_a_member_that_the_group_does_not_have_reads_nothing_of_it(scene: Scene) -> None:
    a, _ = with_two_members(scene)
    stranger = scene.member("stranger").beat({"0": [0]}, member_epoch=3)
    assert (stranger.code, stranger.active) == (ErrorCode.UNKNOWN_MEMBER_ID, None)
    assert a.beat().epoch_and_tasks == (3, None)


def test_a_member_id_may_have_300_characters(scene: Scene) -> None:
    assert scene.member("m" * 300).join().epoch_and_tasks == (2, ALL)


def test_describing_an_unknown_group_is_refused_with_its_name(scene: Scene) -> None:
    described = scene.described()
    assert ErrorCode(described.error_code) is ErrorCode.GROUP_ID_NOT_FOUND
    assert described.error_message == f"Group {scene.group} not found."
    assert (described.group_state, described.group_epoch, described.assignment_epoch) == ("", 0, 0)
    assert (described.topology, described.members, described.assignor_name) == (None, [], None)


def test_a_refused_heartbeat_response_has_no_tasks_and_no_status(scene: Scene) -> None:
    request = StreamsGroupHeartbeatRequest(group_id=scene.group, member_id="a", member_epoch=-5)
    answer = scene.talk.quietly(request, 1)
    assert answer.status == []
    assert (answer.active_tasks, answer.standby_tasks, answer.warmup_tasks) == (None, None, None)
