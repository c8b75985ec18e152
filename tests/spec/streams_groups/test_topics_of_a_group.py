"""Tests that a streams group reacts to missing, new and changed topics, and that the broker creates topics for the
group (docs/spec/streams-groups.md#s4, #s13-3, #s13-5)."""

from odradek.broker.groups.common.group import TimerKey, TimerKind
from odradek.broker.groups.streams.limits import MAX_TASKS, MAX_TOPICS
from odradek.protocol.errors import ErrorCode
from tests.support.group_scene import GROUP
from tests.support.streams_scene import StreamsHeartbeatResult, StreamsScene, refused, subtopology, topology

OK = ErrorCode.NONE.value
STALE, MISSING_SOURCES, WRONG, MISSING, DELAYED = 0, 1, 2, 3, 5
WITH_STORE = topology(subtopology("0", ["i4"], ["log"]))


def failed(scene: StreamsScene, *topics: str, **reasons: str) -> None:
    scene.turn(lambda core: core.internal_topics_created(GROUP, list(topics), reasons, scene.now_ms))


def test_scenario_034_missing_source_topics_are_reported() -> None:
    scene = StreamsScene(reads=topology(subtopology("0", ["s1", "s2", "s3", "s4", "s5"])))
    assert scene.member("a") == StreamsHeartbeatResult(OK, 2, "", (MISSING_SOURCES,))
    assert scene.status(MISSING_SOURCES) == "Source topics s1, s2, s3 and 2 additional topics are missing."
    assert scene.state == ("NotReady", 2, 2)
    assert scene.beat("a") == StreamsHeartbeatResult(OK, 2, None, (MISSING_SOURCES,))


def test_scenario_037_source_topics_come_grow_and_go() -> None:
    scene = StreamsScene(topics={"other": 1})
    scene.member("a")
    scene.cluster.make("i4", 4)
    since = len(scene.log)
    assert scene.beat("a") == StreamsHeartbeatResult(OK, 3, "0:0123")
    assert scene.keys_written(since) == [17, 21, 20, 22]
    scene.cluster.grow("i4", 5)
    assert scene.beat("a") == StreamsHeartbeatResult(OK, 4, "0:01234")
    scene.cluster.delete("i4")
    assert scene.beat("a") == StreamsHeartbeatResult(OK, 4, "", (MISSING_SOURCES,))
    assert scene.state == ("NotReady", 5, 5)
    assert scene.beat("a", owned="") == StreamsHeartbeatResult(OK, 5, None, (MISSING_SOURCES,))


def test_a_topic_outside_the_topology_does_not_affect_a_group() -> None:
    scene = StreamsScene()
    scene.member("a")
    since = len(scene.log)
    scene.cluster.make("other", 1)
    assert scene.beat("a") == StreamsHeartbeatResult(OK, 2, None)
    assert scene.keys_written(since) == []


def test_scenario_038_a_missing_changelog_is_created_once() -> None:
    scene = StreamsScene(reads=WITH_STORE)
    assert scene.member("a") == StreamsHeartbeatResult(OK, 2, "", (MISSING,))
    assert scene.status(MISSING) == "Internal topics are missing: log"
    assert [(topic.name, topic.partitions) for topic in scene.to_create] == [("log", 4)]
    assert scene.beat("a").statuses == (MISSING,)
    assert scene.to_create == []
    scene.cluster.make("log", 4)
    failed(scene, "log")
    assert scene.beat("a") == StreamsHeartbeatResult(OK, 3, "0:0123")


def test_scenario_049_a_failed_creation_is_shown_for_two_heartbeat_intervals_and_then_tried_again() -> None:
    scene = StreamsScene(reads=WITH_STORE)
    scene.member("a")
    failed(scene, "log", log="no room")
    scene.beat("a")
    assert scene.status(MISSING) == "Internal topics are missing: log; Creation failed: log (no room)."
    assert scene.to_create == []
    scene.advance(10_000)
    scene.beat("a")
    assert scene.status(MISSING) == "Internal topics are missing: log"
    assert [topic.name for topic in scene.to_create] == ["log"]


def test_scenario_108_topics_that_a_member_may_not_create_are_reported() -> None:
    scene = StreamsScene(reads=topology(subtopology("0", ["i4"], ["log", "log2"])))
    scene.forbidden = {"log2"}
    scene.member("a")
    assert scene.status(MISSING).endswith("; Unauthorized to CREATE on topics log2.")
    assert scene.to_create == []
    scene.forbidden = set()
    scene.beat("a")
    assert {topic.name for topic in scene.to_create} == {"log", "log2"}


def test_scenario_055_a_deleted_changelog_revokes_the_tasks() -> None:
    scene = StreamsScene(reads=WITH_STORE, topics={"i4": 4, "log": 4})
    assert scene.member("a") == StreamsHeartbeatResult(OK, 2, "0:0123")
    scene.cluster.delete("log")
    assert scene.beat("a") == StreamsHeartbeatResult(OK, 2, "", (MISSING,))
    assert [topic.name for topic in scene.to_create] == ["log"]


def test_scenario_056_a_source_topic_that_was_recreated_raises_the_epoch() -> None:
    scene = StreamsScene()
    scene.member("a")
    scene.cluster.delete("i4")
    scene.cluster.make("i4", 4)
    assert scene.beat("a") == StreamsHeartbeatResult(OK, 3, None)


def test_scenario_051_a_group_keeps_its_topology() -> None:
    scene = StreamsScene(reads=topology(subtopology("0", ["i4"]), epoch=3), topics={"i4": 4, "i3": 3})
    other = subtopology("0", ["i3"])
    scene.member("a")
    assert scene.member("c", reads=topology(other, epoch=3)) == refused(ErrorCode.INVALID_REQUEST)
    assert scene.last_error == "Topology updates are not supported yet."
    assert scene.member("c", reads=topology(subtopology("0", ["i4"]), epoch=4)).code == 42
    assert scene.member("c", reads=topology(other, epoch=1)) == StreamsHeartbeatResult(OK, 3, "", (STALE,))
    assert scene.status(STALE) == "The member's topology epoch 1 is behind the group's topology epoch 3."
    assert scene.member_of("c").topology_epoch == 1
    scene.beat("a", -1)
    scene.beat("c", -1)
    assert scene.member("d", reads=topology(other, epoch=9)).code == 42


def test_the_status_of_topics_follows_the_status_of_the_delay() -> None:
    scene = StreamsScene(interval_ms=1_000, reads=WITH_STORE)
    scene.member("a")
    assert scene.member("c").statuses == (DELAYED, MISSING)


def test_after_a_restart_the_topology_is_compared_again_without_a_new_epoch() -> None:
    scene = StreamsScene(reads=WITH_STORE, topics={"i4": 4, "log": 4})
    scene.member("a")
    described = scene.described().topology
    assert described is not None
    assert [topic.partitions for topic in (described.subtopologies or [])[0].state_changelog_topics] == [4]
    scene.restart()
    described = scene.described().topology
    assert described is not None
    assert [topic.partitions for topic in (described.subtopologies or [])[0].state_changelog_topics] == [0]
    since = len(scene.log)
    assert scene.beat("a") == StreamsHeartbeatResult(OK, 2, None)
    assert scene.keys_written(since) == []


def test_the_delay_of_a_deleted_group_is_stopped() -> None:
    scene = StreamsScene(delay_ms=3_000)
    scene.member("a")
    scene.beat("a", -1)
    scene.turn(lambda core: core.delete_group(GROUP))
    assert TimerKey(TimerKind.INITIAL_DELAY, GROUP) not in scene.due


# --- Limits.


def test_a_topology_of_too_many_topics_is_refused() -> None:
    scene = StreamsScene()
    names = [f"s{number}" for number in range(MAX_TOPICS)]
    assert scene.member("a", reads=topology(subtopology("0", names))) == refused(ErrorCode.STREAMS_INVALID_TOPOLOGY)
    assert scene.last_error == "The topology has 5001 subtopologies and topics; this broker allows 5000."
    assert scene.member("a", reads=topology(subtopology("0", names[:-1]))).code == OK


def test_a_topology_of_too_many_tasks_is_refused() -> None:
    scene = StreamsScene(topics={"wide": MAX_TASKS + 1}, reads=topology(subtopology("0", ["wide"])))
    assert scene.member("a") == refused(ErrorCode.STREAMS_INVALID_TOPOLOGY)
    assert scene.last_error == "The topology has 20001 tasks; this broker allows 20000 in a group."
    assert scene.log == []


# --- Endpoints.


def endpoints(scene: StreamsScene) -> list[tuple[str, dict[str, list[int]]]] | None:
    assert scene.last is not None
    partitions = scene.last.partitions_by_user_endpoint
    if partitions is None:
        return None
    return [
        (each.user_endpoint.host, {topic.topic: topic.partitions for topic in each.active_partitions})
        for each in partitions
    ]


def test_scenario_073_the_endpoint_epoch_counts_changes() -> None:
    scene = StreamsScene(reads=topology(subtopology("0", ["i4", "e3"], ["log"])), topics={"i4": 4, "e3": 3})
    scene.member("a", endpoint=("ha", 1))
    assert endpoints(scene) == [("ha", {})]
    assert scene.last is not None
    assert scene.last.endpoint_information_epoch == 0
    scene.cluster.make("log", 4)
    scene.beat("a", endpoint_epoch=0)
    assert scene.last.endpoint_information_epoch == 1
    assert endpoints(scene) == [("ha", {"i4": [0, 1, 2, 3], "e3": [0, 1, 2]})]
    scene.beat("a", endpoint_epoch=1)
    assert endpoints(scene) is None


def test_scenario_078_a_member_without_an_endpoint_gets_those_of_others() -> None:
    scene = StreamsScene()
    scene.member("a", endpoint=("ha", 1))
    scene.beat("a", endpoint=("hb", 1))
    scene.member("c")
    assert endpoints(scene) == [("hb", {"i4": [0, 1, 2, 3]})]


def test_scenario_080_a_group_without_endpoints_returns_none() -> None:
    scene = StreamsScene()
    scene.member("a")
    assert endpoints(scene) == []
    scene.beat("a", endpoint_epoch=0)
    assert endpoints(scene) is None
