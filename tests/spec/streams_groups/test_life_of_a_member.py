"""Tests how members join a streams group, stay in it, change and leave (docs/spec/streams-groups.md#s2, #s13-1,
#s13-2)."""

import pytest

from odradek.protocol.errors import ErrorCode
from odradek.protocol.kafka_rules import KafkaRules
from odradek.protocol.messages.streams_group_heartbeat_request import (
    KeyValue,
    StreamsGroupHeartbeatRequest,
    TaskOffset,
)
from tests.support.group_scene import GROUP
from tests.support.streams_scene import StreamsHeartbeatResult, StreamsScene, refused, subtopology, tasks, topology

E = ErrorCode
OK = E.NONE.value
DELAYED, STALE, SHUTDOWN, MISSING_TAGS = 5, 0, 4, 6


def two_members() -> StreamsScene:
    """Returns a group with four tasks at epoch 3, in which member a has 0 and 1, and member c has 2 and 3."""
    scene = StreamsScene()
    scene.member("a")
    scene.member("c")
    scene.beat("a")
    scene.beat("a", owned="0:01")
    scene.beat("c")
    assert (scene.held("a"), scene.held("c"), scene.state) == ("0:01", "0:23", ("Stable", 3, 3))
    return scene


def test_scenario_001_the_first_member_gets_all_tasks() -> None:
    scene = StreamsScene()
    assert scene.member("a") == StreamsHeartbeatResult(OK, 2, "0:0123")
    assert scene.state == ("Stable", 2, 2)
    assert scene.keys_written() == [19, 23, 17, 21, 20, 22]


def test_scenario_002_a_second_member_waits_for_the_tasks_of_the_first_one() -> None:
    scene = StreamsScene()
    scene.member("a")
    since = len(scene.log)
    assert scene.member("c") == StreamsHeartbeatResult(OK, 3, "")
    assert scene.keys_written(since) == [19, 17, 21, 21, 20, 22]
    assert scene.state == ("Reconciling", 3, 3)
    assert (scene.target("a"), scene.target("c")) == ("0:01", "0:23")


def test_scenario_007_a_task_is_released_when_its_member_says_so() -> None:
    scene = StreamsScene()
    scene.member("a")
    scene.member("c")
    assert scene.beat("a") == StreamsHeartbeatResult(OK, 2, "0:01")
    assert scene.beat("c") == StreamsHeartbeatResult(OK, 3, None)
    assert scene.beat("a", owned="0:0123") == StreamsHeartbeatResult(OK, 2, "0:01")
    assert scene.beat("a", owned="0:01") == StreamsHeartbeatResult(OK, 3, None)
    since = len(scene.log)
    assert scene.beat("c") == StreamsHeartbeatResult(OK, 3, "0:23")
    assert scene.beat("c") == StreamsHeartbeatResult(OK, 3, None)
    assert scene.keys_written(since) == [22]


def test_scenario_018_a_member_that_reports_other_tasks_than_its_own_gets_its_tasks_again() -> None:
    scene = two_members()
    since = len(scene.log)
    assert scene.beat("a", owned="0:1") == StreamsHeartbeatResult(OK, 3, "0:01")
    assert scene.beat("c", owned="") == StreamsHeartbeatResult(OK, 3, "0:23")
    assert scene.beat("a", owned="0:01") == StreamsHeartbeatResult(OK, 3, None)
    assert scene.beat("c", 2, owned="0:2") == refused(E.FENCED_MEMBER_EPOCH)
    assert scene.keys_written(since) == []


def test_a_joining_member_is_ordered_after_the_members_of_the_group() -> None:
    scene = StreamsScene(topics={"i4": 5})
    for member in ("m425", "m400", "m532"):
        scene.member(member, process="P")
    # Kafka's table of members would place m532 before m400, but Kafka adds m532 to the table only after this decision.
    assert [scene.target(member) for member in ("m425", "m400", "m532")] == ["0:01", "0:24", "0:3"]


def test_a_plain_heartbeat_writes_nothing() -> None:
    scene = two_members()
    since = len(scene.log)
    for member in ("a", "c", "a"):
        assert scene.beat(member) == StreamsHeartbeatResult(OK, 3, None)
    assert scene.keys_written(since) == []


def test_scenario_008_a_repeated_heartbeat_is_accepted_if_the_member_owns_only_what_is_its_own() -> None:
    scene = two_members()
    assert scene.beat("a", 2, owned="0:01") == StreamsHeartbeatResult(OK, 3, None)
    assert scene.beat("a", 2) == refused(E.FENCED_MEMBER_EPOCH)
    assert scene.last_error == (
        "The streams group member has a smaller member epoch (2) than the one known by the group coordinator (3). "
        "The member must abandon all its partitions and rejoin."
    )
    assert scene.beat("a", 2, owned="0:0123") == refused(E.FENCED_MEMBER_EPOCH)
    assert scene.beat("a", 99) == refused(E.FENCED_MEMBER_EPOCH)


def test_scenario_009_the_tasks_of_a_member_that_leaves_go_to_the_others() -> None:
    scene = two_members()
    since = len(scene.log)
    assert scene.beat("c", -1) == StreamsHeartbeatResult(OK, -1, None)
    assert scene.keys_written(since) == [-22, -21, -19, 17]
    assert scene.state == ("Assigning", 4, 3)
    assert scene.beat("a") == StreamsHeartbeatResult(OK, 4, "0:0123")


def test_scenario_022_the_next_member_of_an_empty_group_need_not_wait_for_the_interval() -> None:
    scene = StreamsScene(interval_ms=1_000)
    scene.member("a")
    since = len(scene.log)
    scene.beat("a", -1)
    assert scene.keys_written(since) == [-22, -21, -19, 17, 20]
    assert scene.state == ("Empty", 3, 3)
    assert scene.member("a") == StreamsHeartbeatResult(OK, 4, "0:0123")


def test_kafka_4_3_leaves_the_assignment_epoch_of_an_empty_group() -> None:
    scene = StreamsScene(rules=KafkaRules.KAFKA_4_3)
    scene.member("a")
    scene.beat("a", -1)
    assert scene.state == ("Empty", 3, 2)


def test_scenario_011_a_target_is_computed_once_in_an_interval() -> None:
    scene = StreamsScene(interval_ms=1_000)
    scene.member("a")
    assert scene.member("c") == StreamsHeartbeatResult(OK, 2, "", (DELAYED,))
    assert scene.status(DELAYED) == "Assignment delayed due to the configured assignment interval."
    assert scene.beat("a") == StreamsHeartbeatResult(OK, 2, None, (DELAYED,))
    scene.now_ms += 1_000
    assert scene.beat("c") == StreamsHeartbeatResult(OK, 3, None)
    assert scene.beat("a") == StreamsHeartbeatResult(OK, 2, "0:01")


def test_scenario_013_each_field_of_a_member_raises_the_epoch_when_it_changes() -> None:
    scene = StreamsScene()
    scene.member("a")
    assert scene.beat("a", rack="r1").epoch == 3
    assert scene.beat("a", rack="r1").epoch == 3
    assert scene.beat("a", process="other").epoch == 4
    assert scene.beat("a", tags={"zone": "x"}).epoch == 5
    assert scene.beat("a", tags={}).epoch == 6
    assert scene.beat("a", timeout_ms=1_000).epoch == 7
    assert scene.beat("a", endpoint=("h", 1)).epoch == 8


def test_a_field_that_is_omitted_stays() -> None:
    scene = StreamsScene()
    scene.member("a", rack="r1", tags={"zone": "x"}, endpoint=("h", 1))
    scene.beat("a")
    member = scene.member_of("a")
    assert (member.rack_id, member.process_id, member.client_tags) == ("r1", "A", [_tag("zone", "x")])
    assert member.user_endpoint is not None
    scene.member("a")
    assert scene.member_of("a").user_endpoint is None  # a member that rejoins without an endpoint no longer has one


def _tag(key: str, value: str) -> object:
    from odradek.protocol.messages import streams_group_describe_response as described

    return described.KeyValue(key=key, value=value)


def test_scenario_016_a_task_that_returns_to_its_owner_is_assigned_one_heartbeat_later() -> None:
    scene = StreamsScene()
    scene.member("a")
    scene.member("c")
    scene.beat("a")
    scene.beat("c", -1)
    assert scene.beat("a", owned="0:0123") == StreamsHeartbeatResult(OK, 2, "0:01")
    assert scene.beat("a", owned="0:01") == StreamsHeartbeatResult(OK, 4, None)
    assert scene.beat("a") == StreamsHeartbeatResult(OK, 4, "0:0123")


def test_scenario_017_a_member_that_joins_again_has_given_up_what_it_should() -> None:
    scene = StreamsScene()
    scene.member("a")
    scene.member("c")
    scene.beat("a")
    assert scene.member("a") == StreamsHeartbeatResult(OK, 3, "0:01")
    assert scene.beat("c") == StreamsHeartbeatResult(OK, 3, "0:23")


@pytest.mark.parametrize(
    ("epoch", "instance", "code", "message"),
    [
        (5, None, E.GROUP_ID_NOT_FOUND, "Streams group billing not found."),
        (-1, None, E.GROUP_ID_NOT_FOUND, "Group billing not found."),
        (-2, "i", E.GROUP_ID_NOT_FOUND, "Group billing not found."),
        (-2, None, E.INVALID_REQUEST, "InstanceId can't be null."),
        (-3, None, E.INVALID_REQUEST, "MemberEpoch is -3, but must be greater than or equal to -2."),
    ],
)
def test_scenario_025_heartbeats_of_an_unknown_group_are_refused(
    epoch: int, instance: str | None, code: ErrorCode, message: str
) -> None:
    scene = StreamsScene()
    assert scene.beat("a", epoch, instance=instance) == refused(code)
    assert scene.last_error == message


@pytest.mark.parametrize("epoch", [5, -1])
def test_scenario_026_heartbeats_of_an_unknown_member_are_refused(epoch: int) -> None:
    scene = two_members()
    assert scene.beat("x", epoch) == refused(E.UNKNOWN_MEMBER_ID)
    assert scene.last_error == "Member x is not a member of group billing."


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("member_id", " ", "MemberId can't be empty."),
        ("group_id", "", "GroupId can't be empty."),
        ("instance_id", "", "InstanceId can't be empty."),
        ("rack_id", "", "RackId can't be empty."),
        ("rebalance_timeout_ms", -1, "RebalanceTimeoutMs must be provided in first request."),
        ("active_tasks", None, "ActiveTasks must be empty when (re-)joining."),
        ("standby_tasks", tasks("0:1"), "StandbyTasks must be empty when (re-)joining."),
        ("warmup_tasks", None, "WarmupTasks must be empty when (re-)joining."),
        ("topology", None, "Topology must be non-null when (re-)joining."),
        ("client_tags", [KeyValue(key="k"), KeyValue(key="k")], "ClientTags must not contain duplicate keys."),
    ],
)
def test_scenario_023_malformed_joins_are_refused(field: str, value: object, message: str) -> None:
    request = StreamsGroupHeartbeatRequest(
        group_id=GROUP,
        member_id="a",
        rebalance_timeout_ms=0,
        topology=topology(subtopology("0", ["i4"])),
        active_tasks=[],
        standby_tasks=[],
        warmup_tasks=[],
    )
    scene = StreamsScene()
    assert scene.ask(request).code == OK
    setattr(request, field, value)
    assert scene.ask(request) == refused(E.INVALID_REQUEST)
    assert scene.last_error == message


def test_scenario_023_a_heartbeat_with_only_some_task_lists_or_with_a_topology_is_refused() -> None:
    scene = two_members()
    request = StreamsGroupHeartbeatRequest(group_id=GROUP, member_id="a", member_epoch=3, active_tasks=[])
    assert scene.ask(request) == refused(E.INVALID_REQUEST)
    assert scene.last_error == "If one task-type is non-null, all must be non-null."
    request = StreamsGroupHeartbeatRequest(group_id=GROUP, member_id="a", member_epoch=3, topology=scene.reads)
    assert scene.ask(request) == refused(E.INVALID_REQUEST)
    assert scene.last_error == "Topology can only be provided when (re-)joining."


def test_scenario_023_reported_tasks_that_do_not_exist_are_refused() -> None:
    scene = two_members()
    assert scene.beat("a", owned="9:0") == refused(E.INVALID_REQUEST)
    assert scene.last_error == "Subtopology 9 does not exist in the topology."
    assert scene.beat("a", owned="0:7") == refused(E.INVALID_REQUEST)


def test_scenario_032_a_full_group_admits_nobody_but_its_own() -> None:
    scene = StreamsScene(max_size=2)
    scene.member("a", instance="ia")
    scene.member("c")
    assert scene.member("d") == refused(E.GROUP_MAX_SIZE_REACHED)
    assert scene.last_error == "The streams group has reached its maximum capacity of 2 members."
    assert scene.member("d", instance="id") == refused(E.GROUP_MAX_SIZE_REACHED)
    assert scene.member("c").code == OK
    scene.beat("a", -2, instance="ia")
    assert scene.member("a2", instance="ia").code == OK


def test_a_refused_join_leaves_no_group() -> None:
    scene = StreamsScene(max_size=1)
    assert scene.member("a", reads=topology(subtopology("0"))) == refused(E.STREAMS_INVALID_TOPOLOGY)
    assert scene.last_error == "No source topics found for subtopology 0"
    assert scene.log == []
    assert scene.core.list_groups([], []) == []


# --- Timeouts.


def test_scenario_066_a_silent_member_is_removed() -> None:
    scene = two_members()
    scene.now_ms += 44_999
    scene.beat("a")
    scene.advance(1)
    assert scene.beat("c") == refused(E.UNKNOWN_MEMBER_ID)
    assert scene.beat("a") == StreamsHeartbeatResult(OK, 4, "0:0123")


def test_scenario_067_a_member_that_gives_up_nothing_is_removed() -> None:
    scene = StreamsScene()
    scene.member("a", timeout_ms=600)
    scene.member("c")
    scene.beat("a")
    scene.advance(400)
    scene.beat("a")  # This heartbeat does not restart the timeout.
    scene.advance(200)
    assert scene.beat("a") == refused(E.UNKNOWN_MEMBER_ID)
    assert scene.beat("c") == StreamsHeartbeatResult(OK, 4, "0:0123")


def test_scenario_068_the_first_target_waits_for_more_members() -> None:
    scene = StreamsScene(delay_ms=1_000)
    assert scene.member("a") == StreamsHeartbeatResult(OK, 1, "", (DELAYED,))
    assert scene.status(DELAYED) == "Assignment delayed due to the configured initial rebalance delay."
    assert scene.member("c") == StreamsHeartbeatResult(OK, 1, "", (DELAYED,))
    assert scene.state == ("Assigning", 3, 1)
    scene.advance(1_000)
    assert scene.state == ("Reconciling", 3, 3)
    assert {len(scene.target(name)) for name in "ac"} == {len("0:01")}


def test_scenario_070_an_emptied_group_waits_again() -> None:
    scene = StreamsScene(delay_ms=1_000)
    scene.member("a")
    scene.advance(1_000)
    scene.beat("a")
    scene.beat("a", -1)
    epoch = scene.state[2]
    assert scene.member("a") == StreamsHeartbeatResult(OK, epoch, "", (DELAYED,))


def test_scenario_071_the_delay_of_a_group_without_members_ends_with_nothing() -> None:
    scene = StreamsScene(delay_ms=1_000)
    scene.member("a")
    scene.beat("a", -1)
    since = len(scene.log)
    scene.advance(1_000)
    assert scene.keys_written(since) == []
    assert scene.state[0] == "Empty"


# --- Changes that are not recorded.


def test_scenario_057_a_member_asks_all_members_to_shut_down() -> None:
    scene = two_members()
    since = len(scene.log)
    assert scene.beat("a", shutdown=True).statuses == (SHUTDOWN,)
    assert scene.status(SHUTDOWN) == (
        "Streams group member a encountered a fatal error and requested a shutdown for the entire application."
    )
    assert scene.beat("c").statuses == (SHUTDOWN,)
    assert scene.keys_written(since) == []
    scene.beat("a", -1)
    assert scene.beat("c").statuses == (SHUTDOWN,)
    scene.beat("c", -1)
    assert scene.member("d").statuses == ()


def test_reported_offsets_are_described_until_their_member_leaves() -> None:
    scene = two_members()
    scene.beat("a", offsets=[TaskOffset(subtopology_id="0", partition=1, offset=7)])
    (offset,) = scene.member_of("a").task_offsets
    assert (offset.subtopology_id, offset.partition, offset.offset) == ("0", 1, 7)
    scene.beat("a")
    assert scene.member_of("a").task_offsets != []
    assert scene.member_of("c").task_offsets == []
    scene.beat("a", -1)
    scene.member("a")
    assert scene.member_of("a").task_offsets == []


def test_scenario_105_a_member_without_the_required_tags_gets_a_status() -> None:
    scene = StreamsScene()
    scene.cluster.texts["streams.rack.aware.assignment.tags"] = "zone, cluster"
    assert scene.member("a", tags={"zone": "z"}).statuses == (MISSING_TAGS,)
    assert scene.status(MISSING_TAGS) == (
        "Missing required client tags for rack-aware standby assignment: [cluster]. Configure them via "
        "'client.tag.<tagKey>' in your Streams config."
    )
    assert scene.beat("a", version=0).statuses == ()


def test_scenario_104_a_response_contains_the_settings_of_the_group() -> None:
    scene = StreamsScene()
    scene.cluster.defaults["streams.acceptable.recovery.lag"] = 77
    scene.member("a")
    assert scene.last is not None
    intervals = (
        scene.last.heartbeat_interval_ms,
        scene.last.task_offset_interval_ms,
        scene.last.acceptable_recovery_lag,
    )
    assert intervals == (5_000, 60_000, 77)


def test_scenario_103_a_restart_forgets_shutdown_requests_and_endpoint_epochs() -> None:
    scene = two_members()
    scene.beat("a", shutdown=True, endpoint=("h", 1))
    scene.beat("c")
    before = scene.described()
    scene.restart()
    assert scene.described() == before
    assert scene.beat("a").statuses == ()
    assert scene.last is not None
    assert scene.last.endpoint_information_epoch == 0


# --- Settings that affect the assignment.


def test_scenario_107_more_standby_replicas_make_a_new_target() -> None:
    scene = StreamsScene(reads=topology(subtopology("0", ["i4"], ["log"])), topics={"i4": 4, "log": 4})
    scene.member("a")
    scene.member("c")
    scene.beat("a")
    scene.beat("a", owned="0:01")
    scene.beat("c")
    scene.cluster.defaults["streams.num.standby.replicas"] = 1
    assert scene.beat("a") == StreamsHeartbeatResult(OK, 4, "0:01 | 0:23")
    assert scene.beat("c") == StreamsHeartbeatResult(OK, 4, "0:23 | 0:01")


# --- Kafka 4.3.


def test_kafka_4_3_knows_no_static_members() -> None:
    scene = StreamsScene(rules=KafkaRules.KAFKA_4_3)
    assert scene.member("a", instance="ia") == refused(E.INVALID_REQUEST)
    assert scene.last_error == "Static membership is not yet supported."
    scene.member("a")
    assert scene.beat("a", offsets=[]) == refused(E.INVALID_REQUEST)
    assert scene.last_error == "TaskOffsets are not supported yet."
    assert scene.last is not None
    assert scene.last.task_offset_interval_ms == 0
