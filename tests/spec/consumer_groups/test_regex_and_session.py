"""Tests regular expression subscriptions and sessions that expire (docs/spec/consumer-groups.md#s15-4)."""

import pytest

from odradek.broker.groups.common.group import TimerKey, TimerKind
from odradek.broker.groups.common.outcome import ConsumerConfig
from odradek.protocol.errors import ErrorCode
from tests.support.consumer_scene import ConsumerScene, HeartbeatResult, refused
from tests.support.group_scene import GROUP

E = ErrorCode
OK = E.NONE.value


def topics(*names: str, refresh_ms: int = 600_000) -> ConsumerScene:
    consumer = ConsumerConfig(regex_refresh_interval_ms=refresh_ms)
    return ConsumerScene(topics=dict.fromkeys(names, 1), consumer=consumer)


def resolved() -> ConsumerScene:
    """Sets up scenario 51. The coordinator has resolved A's regular expression."""
    scene = topics("rx-a", "rx-b", "ry")
    assert scene.member("A", regex="rx-.*") == HeartbeatResult(OK, 1, "")
    scene.advance(0)
    assert scene.state == ("Assigning", 2, 1)
    assert scene.beat("A") == HeartbeatResult(OK, 2, "rx-a 0, rx-b 0")
    return scene


def test_scenario_051_an_expression_is_resolved_beside_the_heartbeat_that_brings_it() -> None:
    scene = resolved()
    assert scene.keys_written() == [5, 8, 16, 3, 7, 6, 8]


def test_scenario_052_an_expression_that_the_group_knows_is_assigned_like_names() -> None:
    scene = resolved()
    assert scene.member("C", regex="rx-.*") == HeartbeatResult(OK, 3, "")
    assert scene.state == ("Reconciling", 3, 3)


def with_names() -> ConsumerScene:
    scene = resolved()
    assert scene.beat("A", topics=["ry"]) == HeartbeatResult(OK, 3, "rx-a 0, rx-b 0, ry 0")
    return scene


def test_scenario_053_names_and_expression_together_are_their_union() -> None:
    scene = with_names()
    assert scene.state == ("Stable", 3, 3)


def test_scenario_054_the_expression_is_forgotten_with_its_last_subscriber() -> None:
    scene = with_names()
    scene.member("C", regex="rx-.*")
    scene.settle("A", "C")
    epoch = scene.state[1]
    since = len(scene.log)
    scene.beat("A", regex="")
    assert scene.state[1] == epoch + 1
    assert -16 not in scene.keys_written(since)
    scene.beat("C", -1)
    assert scene.keys_written(since)[-5:] == [-8, -7, -5, -16, 3]


def test_scenario_055_a_topic_that_matches_is_found_by_the_next_resolution() -> None:
    scene = topics("ra", "rb", refresh_ms=10_000)
    scene.member("A", regex="r[abc]")
    scene.advance(0)
    scene.beat("A")
    scene.cluster.make("rc", 1)
    scene.advance(10_000)
    assert scene.beat("A") == HeartbeatResult(OK, 2, None)
    scene.advance(1)
    scene.beat("A")
    scene.advance(0)
    assert scene.beat("A") == HeartbeatResult(OK, 3, "ra 0, rb 0, rc 0")


def test_scenario_056_a_new_expression_waits_for_ten_seconds_after_the_last_resolution() -> None:
    scene = topics("ra", "rb")
    scene.member("A", regex="r[ab]")
    scene.advance(3_000)
    scene.beat("A")
    assert scene.member("X", regex="rb").assignment == ""
    scene.advance(6_999)
    scene.beat("X")
    scene.advance(1)
    assert "rb" not in scene.group_of().regexes
    scene.advance(1)
    scene.beat("X")
    scene.advance(0)
    assert "rb" in scene.group_of().regexes


def test_a_new_expression_does_not_wait_where_no_other_is_left() -> None:
    scene = resolved()
    scene.beat("A", -1)
    scene.advance(1)
    assert scene.member("X", regex="ry").assignment == ""
    scene.advance(0)
    assert scene.beat("X").assignment == "ry 0"


def test_scenario_057_a_new_topic_is_looked_for_ten_seconds_after_the_last_resolution() -> None:
    scene = resolved()
    scene.cluster.make("rx-c", 1)
    scene.advance(3_000)
    scene.beat("A")
    scene.advance(0)
    assert scene.beat("A") == HeartbeatResult(OK, 2, None)
    scene.advance(7_001)
    scene.beat("A")
    scene.advance(0)
    assert scene.beat("A") == HeartbeatResult(OK, 3, "rx-a 0, rx-b 0, rx-c 0")


def test_a_changed_permission_is_seen_after_the_refresh_interval() -> None:
    scene = topics("ra", "rb", refresh_ms=20_000)
    scene.hidden = {"rb"}
    scene.member("A", regex="r[ab]")
    scene.advance(0)
    assert scene.beat("A") == HeartbeatResult(OK, 2, "ra 0")
    scene.hidden = set()
    scene.advance(20_000)
    scene.beat("A")
    scene.advance(0)
    assert scene.beat("A") == HeartbeatResult(OK, 2, None)
    scene.advance(1)
    scene.beat("A")
    scene.advance(0)
    assert scene.beat("A") == HeartbeatResult(OK, 3, "ra 0, rb 0")


def test_scenario_058_topics_that_the_member_may_not_see_are_left_out() -> None:
    scene = topics("ra", "rb")
    scene.hidden = {"ra"}
    scene.member("A", regex="r[ab]")
    scene.advance(0)
    assert scene.beat("A") == HeartbeatResult(OK, 2, "rb 0")


@pytest.mark.parametrize("wrong", ["[", "a**", "(?=x)", "\\1", "a{1001}"])
def test_scenario_059_an_invalid_expression_is_refused_and_leaves_the_member_unchanged(wrong: str) -> None:
    scene = resolved()
    assert scene.beat("A", regex=wrong) == refused(E.INVALID_REGULAR_EXPRESSION)
    assert scene.member_of("A").subscribed_topic_regex == "rx-.*"
    assert scene.beat("A") == HeartbeatResult(OK, 2, None)
    assert scene.member("N", regex=wrong, group="new") == refused(E.INVALID_REGULAR_EXPRESSION)
    assert "new" not in scene.groups()


def with_sessions(session_ms: int) -> ConsumerScene:
    scene = ConsumerScene()
    scene.cluster.defaults["consumer.session.timeout.ms"] = session_ms
    return scene


def test_scenario_060_a_silent_member_is_removed_even_if_it_is_static_and_absent() -> None:
    scene = with_sessions(2_000)
    scene.member("A", "T6")
    scene.member("S", "T6", instance="is")
    scene.member("C", "T6")
    scene.settle("A", "S", "C")
    scene.beat("S", -2, instance="is")
    scene.advance(1_999)
    scene.beat("C")
    scene.advance(1)
    assert list(scene.group_of().members) == ["C"]
    assert scene.beat("C").assignment == "T6 012345"


def test_scenario_061_commits_do_not_keep_a_session() -> None:
    scene = with_sessions(3_000)
    scene.member("A", "T3")
    for _ in range(2):
        scene.advance(1_000)
        assert scene.commit(1, member_id="A", generation=2) is E.NONE
    scene.advance(1_000)
    assert scene.commit(1, member_id="A", generation=2) is E.UNKNOWN_MEMBER_ID


def test_scenario_062_a_timer_that_runs_keeps_its_length() -> None:
    scene = with_sessions(10_000)
    scene.member("A", "T3")
    scene.cluster.settings["billing", "consumer.session.timeout.ms"] = 2_000
    scene.advance(9_999)
    assert scene.groups() == {"billing": "Stable"}
    scene.beat("A")
    scene.advance(2_000)
    assert scene.groups() == {"billing": "Empty"}


def test_a_search_is_forgotten_that_ends_after_its_group_was_deleted() -> None:
    scene = topics("rx-a")
    scene.member("A", regex="rx-.*")
    scene.beat("A", -1)
    scene.turn(lambda core: core.delete_group(GROUP))
    scene.turn(lambda core: core.on_timer(TimerKey(TimerKind.REGEX, GROUP), scene.now_ms))
    assert scene.cluster.forgotten == [GROUP]


def test_a_search_is_forgotten_that_ends_after_its_group_has_resolved_its_expressions() -> None:
    scene = resolved()
    since = len(scene.log)
    scene.turn(lambda core: core.on_timer(TimerKey(TimerKind.REGEX, GROUP), scene.now_ms))
    assert (scene.cluster.forgotten, scene.keys_written(since)) == ([GROUP], [])
