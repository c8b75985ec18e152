"""Tests how members join a consumer group, stay in it and leave it (docs/spec/consumer-groups.md#s15-1)."""

import pytest

from odradek.broker.groups.common.outcome import ConsumerConfig
from odradek.protocol.errors import ErrorCode
from odradek.protocol.kafka_rules import NEWEST, KafkaRules
from tests.support.consumer_scene import ConsumerScene, HeartbeatResult, embedded, refused

E = ErrorCode
DEFAULT_INTERVAL_MS = 1_000
OK = E.NONE.value


def one_member(interval_ms: int = 0, rules: KafkaRules = NEWEST) -> ConsumerScene:
    scene = ConsumerScene(interval_ms=interval_ms, rules=rules, topics={"T3": 3, "U2": 2, "T6": 6})
    assert scene.member("A", "T3") == HeartbeatResult(OK, 2, "T3 012")
    return scene


def test_scenario_001_the_first_member_gets_everything_at_epoch_2() -> None:
    scene = one_member()
    assert scene.last is not None
    assert scene.last.heartbeat_interval_ms == 5_000
    assert scene.state == ("Stable", 2, 2)
    assert scene.described().assignor_name == "uniform"
    assert scene.keys_written() == [5, 3, 7, 6, 8]


def test_scenario_002_an_unchanged_assignment_is_sent_once() -> None:
    scene = one_member()
    assert scene.beat("A") == HeartbeatResult(OK, 2, None)
    assert scene.beat("A", owned={"T3": "012"}) == HeartbeatResult(OK, 2, None)
    assert scene.member("A", "T3") == HeartbeatResult(OK, 2, "T3 012")
    assert scene.state == ("Stable", 2, 2)


def test_scenario_003_order_and_repetition_of_names_mean_nothing() -> None:
    scene = one_member(DEFAULT_INTERVAL_MS)
    assert scene.beat("A", topics=["T3", "U2"]) == HeartbeatResult(OK, 2, None)
    assert scene.state == ("Assigning", 3, 2)
    for same in (["U2", "T3"], ["U2", "T3", "U2"]):
        assert scene.beat("A", topics=same) == HeartbeatResult(OK, 2, None)
        assert scene.state == ("Assigning", 3, 2)


def test_scenario_004_names_that_do_not_exist_or_cannot_are_a_change_like_any_other() -> None:
    scene = one_member(DEFAULT_INTERVAL_MS)
    assert scene.beat("A", topics=["T3", "nope"]) == HeartbeatResult(OK, 2, None)
    assert scene.beat("A", topics=["T3", "nope", "bad name!"]) == HeartbeatResult(OK, 2, None)
    assert scene.state == ("Assigning", 4, 2)
    assert scene.beat("A", topics=[]) == HeartbeatResult(OK, 2, "")
    assert scene.held("A") == "T3 012"
    assert scene.beat("A", owned={}) == HeartbeatResult(OK, 2, None)
    assert scene.held("A") == ""


@pytest.mark.parametrize("regex", [None, ""])
def test_scenario_005_a_subscription_to_nothing_makes_a_group_at_epoch_1_without_a_record_of_its_epoch(
    regex: str | None,
) -> None:
    scene = ConsumerScene()
    assert scene.member("A", regex=regex) == HeartbeatResult(OK, 1, "")
    for _ in ("now", "after kill -9"):
        assert scene.state == ("Stable", 1, 1)
        assert scene.keys_written() == [5, 8]
        scene.restart()


@pytest.mark.parametrize(("epoch", "word"), [(1, "smaller"), (3, "greater"), (4, "greater")])
def test_scenario_006_another_epoch_is_fenced(epoch: int, word: str) -> None:
    scene = one_member()
    assert scene.beat("A", epoch) == refused(E.FENCED_MEMBER_EPOCH)
    assert f"{word} member epoch ({epoch})" in (scene.last_error or "")


def test_scenario_007_the_previous_epoch_is_accepted_if_the_member_owns_only_assigned_partitions() -> None:
    scene = one_member()
    scene.beat("A", topics=["T3", "T6"])
    assert scene.state == ("Stable", 3, 3)
    assert scene.beat("A", 2) == refused(E.FENCED_MEMBER_EPOCH)
    for owned in ({"T6": "012345"}, {"T6": "01"}, {}):
        assert scene.beat("A", 2, owned=owned) == HeartbeatResult(OK, 3, None)
    assert scene.beat("A", 2, owned={"T6": "09"}) == refused(E.FENCED_MEMBER_EPOCH)


def test_scenario_008_an_epoch_before_the_previous_one_is_fenced() -> None:
    scene = one_member()
    scene.beat("A", topics=["T3", "T6"])
    assert scene.beat("A", 1, owned={}) == refused(E.FENCED_MEMBER_EPOCH)


def test_scenario_009_an_unknown_member_and_an_unknown_group_have_different_errors() -> None:
    scene = one_member()
    for epoch in (3, -1):
        assert scene.beat("X", epoch) == refused(E.UNKNOWN_MEMBER_ID)
        assert scene.beat("X", epoch, group="other") == refused(E.GROUP_ID_NOT_FOUND)


def test_scenario_010_a_member_leaves_once() -> None:
    scene = one_member()
    assert scene.beat("A", -1) == HeartbeatResult(OK, -1, None)
    assert scene.last is not None
    assert scene.last.heartbeat_interval_ms == 0
    assert scene.beat("A", -1) == refused(E.UNKNOWN_MEMBER_ID)
    assert scene.beat("A", 5) == refused(E.UNKNOWN_MEMBER_ID)
    assert scene.state == ("Empty", 3, 3)
    assert scene.keys_written()[-5:] == [-8, -7, -5, 3, 6]


def test_the_target_of_a_group_that_was_emptied_is_at_its_epoch_and_has_no_time() -> None:
    """C1: the assignment epoch of an emptied group equals its group epoch (docs/spec/kafka-4.4.md#s5-1)."""
    scene = one_member(DEFAULT_INTERVAL_MS)
    scene.beat("A", -1)
    assert scene.state == ("Empty", 3, 3)
    assert scene.keys_written()[-5:] == [-8, -7, -5, 3, 6]
    assert scene.group_of().computed_ms == 0


def test_the_first_member_of_a_group_that_was_emptied_gets_its_partitions_at_once() -> None:
    """C2: the first response contains the partitions, even after a restart (docs/spec/kafka-4.4.md#s5-1)."""
    scene = one_member(DEFAULT_INTERVAL_MS)
    scene.beat("A", -1)
    scene.restart()
    assert scene.member("A", "T3") == HeartbeatResult(OK, 4, "T3 012")
    assert scene.state == ("Stable", 4, 4)


def test_scenario_011_an_empty_group_of_kafka_4_3_does_not_forget_when_its_target_was_computed() -> None:
    scene = one_member(DEFAULT_INTERVAL_MS, KafkaRules.KAFKA_4_3)
    scene.beat("A", -1)
    assert scene.state == ("Empty", 3, 2)
    assert scene.keys_written()[-4:] == [-8, -7, -5, 3]
    assert scene.member("A", "T3") == HeartbeatResult(OK, 2, "")
    assert scene.state == ("Assigning", 4, 2)
    scene.advance(DEFAULT_INTERVAL_MS)
    assert scene.beat("A") == HeartbeatResult(OK, 4, "T3 012")


@pytest.mark.parametrize("epoch", [-2, -3, -100])
def test_scenario_012_epochs_that_mean_nothing_here_are_refused(epoch: int) -> None:
    assert one_member().beat("A", epoch) == refused(E.INVALID_REQUEST)


def test_scenario_013_before_version_1_the_coordinator_makes_a_member_id() -> None:
    scene = ConsumerScene()
    scene.member("", "T3", version=0)
    assert scene.last is not None
    assert scene.last.member_id == "made"
    scene.member("mine", "T3", version=0)
    assert scene.last.member_id == "mine"
    assert scene.member("", "T3", version=1) == refused(E.INVALID_REQUEST)


def test_scenario_015_a_full_group_takes_back_its_members_and_nobody_else() -> None:
    scene = ConsumerScene(consumer=ConsumerConfig(max_size=20))
    for number in range(19):
        assert scene.member(f"m{number}", "T3").code == OK
    scene.member("s", "T3", instance="i")
    assert scene.member("one too many", "T3") == refused(E.GROUP_MAX_SIZE_REACHED)
    assert scene.last_error == "The consumer group has reached its maximum capacity of 20 members."
    assert scene.member("m3", "T3").code == OK
    scene.beat("s", -2, instance="i")
    assert scene.member("s2", "T3", instance="i") == refused(E.GROUP_MAX_SIZE_REACHED)
    assert scene.member("s", "T3", instance="i").code == OK
    assert scene.join(version=9, protocols={"range": embedded("T3")}).code is E.GROUP_MAX_SIZE_REACHED


def test_scenario_017_a_topic_that_is_made_later_is_assigned_by_the_next_heartbeat() -> None:
    scene = ConsumerScene()
    assert scene.member("A", "later") == HeartbeatResult(OK, 2, "")
    scene.cluster.make("later", 2)
    assert scene.beat("A") == HeartbeatResult(OK, 3, "later 01")


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"member": " "}, "MemberId can't be empty."),
        ({"group": " "}, "GroupId can't be empty."),
        ({"instance": ""}, "InstanceId can't be empty."),
        ({"rack": " "}, "RackId can't be empty."),
        ({"timeout_ms": -1}, "RebalanceTimeoutMs must be provided in first request."),
        ({"owned": None}, "TopicPartitions must be empty when (re-)joining."),
        ({"owned": {"T3": "0"}}, "TopicPartitions must be empty when (re-)joining."),
        ({"topics": None}, "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."),
        ({"epoch": -2}, "InstanceId can't be null."),
        ({"epoch": -3}, "MemberEpoch is invalid."),
    ],
)
def test_a_join_of_the_wrong_shape_is_refused(changed: dict[str, object], reason: str) -> None:
    scene = ConsumerScene()
    fields: dict[str, object] = {"epoch": 0, "topics": ["T3"], "owned": {}, "timeout_ms": 1_000} | changed
    member = str(fields.pop("member", "A"))
    assert scene.beat(member, **fields) == refused(E.INVALID_REQUEST)  # type: ignore[arg-type]
    assert scene.last_error == reason
    assert scene.groups() == {}
