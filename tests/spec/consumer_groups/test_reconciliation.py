"""Tests how partitions move from one member of a consumer group to another (docs/spec/consumer-groups.md#s15-2)."""

import pytest

from odradek.broker.groups.common.outcome import ConsumerConfig
from odradek.protocol.errors import ErrorCode
from odradek.protocol.kafka_rules import KafkaRules
from tests.support.consumer_scene import ConsumerScene, HeartbeatResult, refused

E = ErrorCode
OK = E.NONE.value
ALL = {"T6": "012345"}


def two_members(interval_ms: int = 0, timeout_ms: int = 300_000) -> ConsumerScene:
    """Sets up scenario 18. A owns everything. C has also joined, unless `interval_ms` delays new assignments."""
    scene = ConsumerScene(interval_ms=interval_ms)
    assert scene.member("A", "T6", timeout_ms=timeout_ms) == HeartbeatResult(OK, 2, "T6 012345")
    if interval_ms == 0:
        assert scene.member("C", "T6") == HeartbeatResult(OK, 3, "")
    return scene


def scene_with_revocation(timeout_ms: int = 300_000) -> ConsumerScene:
    """Sets up scenario 19. The coordinator has told A to revoke partitions 3, 4 and 5."""
    scene = two_members(timeout_ms=timeout_ms)
    assert scene.beat("C") == HeartbeatResult(OK, 3, None)
    assert scene.beat("A") == HeartbeatResult(OK, 2, "T6 012")
    return scene


def settled() -> ConsumerScene:
    """Sets up scenario 20. A owns partitions 0, 1 and 2, and C owns partitions 3, 4 and 5."""
    scene = scene_with_revocation()
    assert scene.beat("A", owned={"T6": "012"}) == HeartbeatResult(OK, 3, None)
    assert scene.beat("C") == HeartbeatResult(OK, 3, "T6 345")
    return scene


def test_scenario_018_a_second_member_gets_its_epoch_at_once_and_its_partitions_later() -> None:
    scene = two_members()
    assert scene.state == ("Reconciling", 3, 3)
    assert (scene.target("A"), scene.target("C")) == ("T6 012", "T6 345")
    assert scene.group_of().members["C"].state.value == 2


def test_scenario_019_the_owner_keeps_its_epoch_until_it_has_revoked_the_partitions() -> None:
    scene = scene_with_revocation()
    assert scene.group_of().members["A"].state.value == 1
    assert scene.held("A") == "T6 012345"
    assert scene.beat("A") == HeartbeatResult(OK, 2, None)
    assert scene.beat("A", owned=ALL) == HeartbeatResult(OK, 2, None)


def test_scenario_020_revoked_partitions_are_assigned_to_the_next_owner() -> None:
    scene = settled()
    assert scene.beat("C", owned={"T6": "345"}) == HeartbeatResult(OK, 3, None)
    assert scene.state == ("Stable", 3, 3)


def three_members() -> ConsumerScene:
    scene = settled()
    assert scene.member("D", "T6") == HeartbeatResult(OK, 4, "")
    return scene


def test_scenario_021_a_third_member_takes_from_both() -> None:
    scene = three_members()
    assert (scene.target("A"), scene.target("C"), scene.target("D")) == ("T6 01", "T6 34", "T6 25")


def test_scenario_022_partitions_come_one_reply_after_their_release() -> None:
    scene = three_members()
    scene.beat("A")
    scene.beat("C")
    assert scene.beat("C", owned={"T6": "34"}) == HeartbeatResult(OK, 4, None)
    assert scene.beat("D") == HeartbeatResult(OK, 4, "T6 5")
    assert scene.beat("A", owned={"T6": "01"}) == HeartbeatResult(OK, 4, None)
    assert scene.beat("D") == HeartbeatResult(OK, 4, "T6 25")


def test_scenario_023_the_partitions_of_a_leaving_member_are_free_at_once() -> None:
    scene = three_members()
    scene.settle("A", "C", "D")
    scene.beat("C", -1)
    assert scene.state == ("Assigning", 5, 4)
    assert scene.beat("A") == HeartbeatResult(OK, 5, "T6 013")
    assert scene.beat("D") == HeartbeatResult(OK, 5, "T6 245")
    assert scene.beat("A") == HeartbeatResult(OK, 5, None)
    assert scene.state == ("Stable", 5, 5)


def test_scenario_024_within_the_interval_a_newcomer_waits_at_the_old_epoch() -> None:
    scene = two_members(interval_ms=1_000)
    scene.advance(100)
    assert scene.member("C", "T6") == HeartbeatResult(OK, 2, "")
    assert scene.state == ("Assigning", 3, 2)
    scene.advance(899)
    assert scene.beat("C") == HeartbeatResult(OK, 2, None)
    scene.advance(1)
    assert scene.beat("C") == HeartbeatResult(OK, 3, None)
    assert scene.state == ("Reconciling", 3, 3)


def test_scenario_025_nothing_is_released_piecemeal() -> None:
    scene = scene_with_revocation()
    assert scene.beat("A", owned={"T6": "0123"}) == HeartbeatResult(OK, 2, None)
    assert scene.beat("C") == HeartbeatResult(OK, 3, None)


def test_scenario_026_to_own_less_than_was_assigned_changes_nothing() -> None:
    scene = settled()
    assert scene.beat("A", owned={"T6": "0"}) == HeartbeatResult(OK, 3, None)
    assert scene.held("A") == "T6 012"


def test_scenario_027_a_member_that_joins_again_owns_nothing() -> None:
    scene = scene_with_revocation()
    assert scene.member("A", "T6") == HeartbeatResult(OK, 3, "T6 012")
    assert scene.beat("C") == HeartbeatResult(OK, 3, "T6 345")


def test_scenario_028_a_member_joins_again_with_another_subscription() -> None:
    scene = settled()
    assert scene.member("A", "T3") == HeartbeatResult(OK, 4, "T3 012")
    assert scene.target("C") == "T6 012345"
    assert scene.beat("C") == HeartbeatResult(OK, 4, "T6 012345")


def test_scenario_029_a_revocation_is_not_taken_back() -> None:
    scene = scene_with_revocation()
    scene.beat("C", -1)
    assert scene.beat("A") == HeartbeatResult(OK, 2, None)
    assert scene.target("A") == "T6 012345"
    assert scene.beat("A", owned=ALL) == HeartbeatResult(OK, 2, None)
    assert scene.beat("A", owned={"T6": "012"}) == HeartbeatResult(OK, 4, "T6 012345")


def test_scenario_030_a_revocation_that_was_not_sent_yet_is_cancelled() -> None:
    scene = two_members()
    scene.beat("C", -1)
    assert scene.beat("A") == HeartbeatResult(OK, 4, None)
    assert scene.state == ("Stable", 4, 4)


def test_scenario_031_a_member_that_a_change_does_not_affect_moves_to_the_new_epoch_with_its_heartbeat() -> None:
    scene = ConsumerScene()
    scene.member("A", "T6")
    scene.member("C", "T3")
    assert scene.state == ("Reconciling", 3, 3)
    assert scene.beat("A") == HeartbeatResult(OK, 3, None)
    assert scene.state == ("Stable", 3, 3)


def test_scenario_032_unsubscribed_partitions_are_revoked_before_there_is_a_new_target() -> None:
    scene = ConsumerScene(interval_ms=1_000)
    scene.member("A", "T6", "T3")
    assert scene.beat("A", topics=["T3"]) == HeartbeatResult(OK, 2, "T3 012")
    assert scene.state == ("Assigning", 3, 2)
    assert scene.target("A") == "T3 012, T6 012345"
    assert scene.beat("A", owned={"T3": "012"}) == HeartbeatResult(OK, 2, None)


def test_scenario_033_a_member_that_does_not_revoke_in_time_is_removed() -> None:
    scene = scene_with_revocation(timeout_ms=1_500)
    scene.advance(1_499)
    assert scene.beat("A") == HeartbeatResult(OK, 2, None)
    scene.advance(1)
    assert scene.beat("A") == refused(E.UNKNOWN_MEMBER_ID)
    assert scene.state == ("Assigning", 4, 3)
    assert scene.beat("C") == HeartbeatResult(OK, 4, "T6 012345")


@pytest.mark.parametrize("timeout_ms", [0, -5])
def test_scenario_034_a_member_with_a_zero_revocation_timeout_is_removed_at_once(timeout_ms: int) -> None:
    scene = scene_with_revocation(timeout_ms=timeout_ms)
    scene.advance(0)
    assert scene.beat("A") == refused(E.UNKNOWN_MEMBER_ID)


def test_scenario_035_the_revocation_timeout_starts_with_the_response_to_the_member() -> None:
    scene = two_members(timeout_ms=1_000)
    scene.advance(1_500)
    assert scene.beat("A") == HeartbeatResult(OK, 2, "T6 012")
    scene.advance(999)
    assert scene.beat("A") == HeartbeatResult(OK, 2, None)
    scene.advance(1)
    assert scene.beat("A") == refused(E.UNKNOWN_MEMBER_ID)


def test_scenario_036_topics_come_go_and_grow() -> None:
    scene = ConsumerScene()
    scene.member("A", "T3")
    scene.cluster.delete("T3")
    assert scene.beat("A") == HeartbeatResult(OK, 2, "")
    assert scene.beat("A", owned={}) == HeartbeatResult(OK, 3, None)
    scene.cluster.make("T3", 2)
    assert scene.beat("A") == HeartbeatResult(OK, 4, "T3 01")
    scene.cluster.grow("T3", 4)
    assert scene.beat("A") == HeartbeatResult(OK, 5, "T3 0123")
    assert scene.state == ("Stable", 5, 5)


def steps(scene: ConsumerScene, assignor: str) -> list[str]:
    """Returns the assignments after each step of scenarios 37 and 38."""
    seen = []
    for name, topics in (("m1", ["T7"]), ("m2", ["T7", "T3"]), ("m3", ["T3", "S2"])):
        scene.member(name, *topics, assignor=assignor)
        seen.append(shares(scene))
    scene.beat("m1", topics=["T7", "S2"])
    seen.append(shares(scene))
    scene.beat("m3", topics=["S2"])
    seen.append(shares(scene))
    scene.beat("m2", -1)
    seen.append(shares(scene))
    return seen


def shares(scene: ConsumerScene) -> str:
    names = list(scene.group_of().members)
    scene.settle(*names)
    assert scene.state[0] == "Stable"
    return "; ".join(f"{name}: {scene.held(name)}" for name in sorted(names))


def test_scenario_037_uniform_with_different_subscriptions() -> None:
    scene = ConsumerScene(topics={"T7": 7, "T3": 3, "S2": 2})
    seen = steps(scene, "uniform")
    assert seen[0] == "m1: T7 0123456"
    assert seen[1] == "m1: T7 01234; m2: T3 012, T7 56"
    assert seen[2] == "m1: T7 01234; m2: T3 01, T7 56; m3: S2 01, T3 2"
    assert seen[3] == seen[2]
    assert seen[4] == "m1: T7 01234; m2: T3 012, T7 56; m3: S2 01"
    assert seen[5] == "m1: T7 0123456; m3: S2 01"


def test_scenario_038_range_with_different_subscriptions() -> None:
    scene = ConsumerScene(topics={"T7": 7, "T3": 3, "S2": 2})
    assert steps(scene, "range") == [
        "m1: T7 0123456",
        "m1: T7 0123; m2: T3 012, T7 456",
        "m1: T7 0123; m2: T3 01, T7 456; m3: S2 01, T3 2",
        "m1: S2 0, T7 0123; m2: T3 01, T7 456; m3: S2 1, T3 2",
        "m1: S2 0, T7 0123; m2: T3 012, T7 456; m3: S2 1",
        "m1: S2 0, T7 0123456; m3: S2 1",
    ]


def test_scenario_039_the_assignor_that_most_members_request_is_used() -> None:
    scene = ConsumerScene()
    seen = []
    for name, wish in (("m1", "range"), ("m2", None), ("m3", "uniform"), ("m4", "range")):
        scene.member(name, "T6", assignor=wish)
        seen.append(scene.described().assignor_name)
    assert seen == ["range", "range", "uniform", "range"]


def changed_assignor(rules: KafkaRules) -> ConsumerScene:
    scene = ConsumerScene(rules=rules)
    scene.member("m", "T6", assignor="uniform")
    assert scene.state == ("Stable", 2, 2)
    scene.beat("m", assignor="range")
    assert scene.described().assignor_name == "range"
    return scene


def test_a_changed_assignor_of_the_group_increases_its_epoch() -> None:
    """C3: the group epoch increases when the group's assignor changes (docs/spec/kafka-4.4.md#s5-1)."""
    scene = changed_assignor(KafkaRules.KAFKA_4_4)
    assert scene.state == ("Stable", 3, 3)
    scene.beat("m", assignor="range")
    assert scene.state == ("Stable", 3, 3)
    scene.beat("m", assignor="uniform")
    assert scene.state == ("Stable", 4, 4)


def test_a_vote_that_does_not_change_the_assignor_of_the_group_keeps_its_epoch() -> None:
    scene = ConsumerScene()
    for name in ("m1", "m2", "m3"):
        scene.member(name, "T6", assignor="uniform")
    scene.settle("m1", "m2", "m3")
    before = scene.state
    scene.beat("m1", assignor="range")
    assert scene.described().assignor_name == "uniform"
    assert scene.state == before


def test_in_kafka_4_3_a_changed_assignor_waits_for_the_next_epoch() -> None:
    assert changed_assignor(KafkaRules.KAFKA_4_3).state == ("Stable", 2, 2)


@pytest.mark.parametrize("wish", ["nope", "", "Range", "simple"])
def test_scenario_040_an_unknown_assignor_is_refused(wish: str) -> None:
    scene = ConsumerScene()
    assert scene.member("A", "T6", assignor=wish) == refused(E.UNSUPPORTED_ASSIGNOR)
    assert scene.last_error == f"ServerAssignor {wish} is not supported. Supported assignors: uniform, range."
    scene.member("A", "T6")
    assert scene.beat("A", assignor=wish) == refused(E.UNSUPPORTED_ASSIGNOR)


def test_scenario_041_the_first_assignor_is_the_default() -> None:
    scene = ConsumerScene(consumer=ConsumerConfig(assignors=("range",)))
    scene.member("A", "T6")
    assert scene.described().assignor_name == "range"
    assert scene.member("B", "T6", assignor="uniform") == refused(E.UNSUPPORTED_ASSIGNOR)
