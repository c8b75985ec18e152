"""Tests the topologies of streams groups, and the topics that a broker creates for them:
docs/spec/streams-groups.md#s13-3."""

import re

import pytest

from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.streams_group_heartbeat_request import Topology
from tests.conformance.streams_scene import (
    ALL,
    DELAYED,
    MISSING_INTERNAL,
    MISSING_SOURCES,
    NOTHING,
    SHUTDOWN,
    STALE,
    WRONGLY_PARTITIONED,
    Scene,
    internal,
    revoke_tasks,
    subtopology,
    topology,
    with_two_members,
)
from tests.support.oracle import needs_kafka

pytestmark = needs_kafka

INVALID_TOPOLOGY = ErrorCode.STREAMS_INVALID_TOPOLOGY
NO_UPDATES = (ErrorCode.INVALID_REQUEST, "Topology updates are not supported yet.")


def test_scenarios_034_and_035_and_036_and_037_source_topics_come_grow_and_go(scene: Scene) -> None:
    names = [scene.named(letter) for letter in "abcde"]
    scene.topology = topology(subtopology("0", names))
    a = scene.member("a")
    missing = a.join()
    assert (missing.epoch_and_tasks, missing.statuses) == ((2, NOTHING), [MISSING_SOURCES])
    assert missing.details == [f"Source topics {', '.join(names[:3])} and 2 additional topics are missing."]
    assert scene.state == ("NotReady", 2, 2)
    again = a.beat()
    assert (again.epoch_and_tasks, again.statuses, again.details) == ((2, None), [MISSING_SOURCES], missing.details)
    for name in names[:-1]:
        scene.make_topic(name, 2)
    scene.make_source("e", 2)
    assert a.beat().epoch_and_tasks == (3, {"0": [0, 1]})
    scene.enlarge_topic(names[0], 5)
    scene.wait_until_coordinator_knows(names[0], 5)
    assert a.beat().epoch_and_tasks == (4, {"0": [0, 1, 2, 3, 4]})
    scene.delete_topic(names[1])
    scene.wait_until_coordinator_misses(names[1])
    gone = a.beat()
    assert (gone.epoch_and_tasks, gone.statuses) == ((4, NOTHING), [MISSING_SOURCES])
    assert gone.details == [f"Source topics {names[1]} are missing."]
    assert scene.state == ("NotReady", 5, 5)
    assert a.beat({}).epoch == 5


def test_scenario_038_a_changelog_is_created(scene: Scene) -> None:
    changelog = scene.named("store-changelog")
    changelog_topic = internal(
        changelog, cleanup_policy="compact", message_timestamp_type="CreateTime", segment_ms="123456"
    )
    scene.topology = topology(subtopology(changelogs=[changelog_topic]))
    a = scene.member("a")
    missing = a.join()
    assert (missing.epoch_and_tasks, missing.statuses) == ((2, NOTHING), [MISSING_INTERNAL])
    assert missing.details == [f"Internal topics are missing: {changelog}"]
    assert a.beat_for_tasks().epoch_and_tasks == (3, ALL)
    assert scene.partitions_of(changelog) == 4
    assert scene.config_of(changelog, "cleanup.policy") == "compact"
    assert scene.config_of(changelog, "segment.ms") == "123456"
    described = scene.described().topology
    assert described is not None
    assert described.subtopologies is not None
    (shown,) = described.subtopologies[0].state_changelog_topics
    assert (shown.name, shown.partitions) == (changelog, 4)


def test_scenario_039_a_topology_that_becomes_ready_within_the_interval_waits_for_its_target(scene: Scene) -> None:
    scene.configure(assignment_interval_ms=3000)
    scene.topology = topology(subtopology(changelogs=[scene.named("c")]))
    a = scene.member("a")
    a.join()
    delayed = a.beat_until(lambda reply: reply.statuses == [DELAYED])
    assert delayed.epoch_and_tasks == (2, None)
    assert scene.state == ("Assigning", 3, 2)
    assert a.beat_for_tasks().epoch_and_tasks == (3, ALL)


def test_scenario_040_a_repartition_topic_has_the_partitions_of_its_widest_source(scene: Scene) -> None:
    between, store = scene.named("by-word-repartition"), scene.named("counts-changelog")
    scene.topology = topology(
        subtopology("0", ["i3", "i6"], sinks=[between]),
        subtopology(
            "1",
            [],
            changelogs=[store],
            repartitions=[internal(between, cleanup_policy="delete", retention_ms="-1", segment_bytes="52428800")],
        ),
    )
    a = scene.member("a")
    a.join()
    tasks = {"0": [0, 1, 2, 3, 4, 5], "1": [0, 1, 2, 3, 4, 5]}
    assert a.beat_for_tasks().epoch_and_tasks == (3, tasks)
    assert [scene.partitions_of(name) for name in (between, store)] == [6, 6]
    found = [scene.config_of(between, name) for name in ("cleanup.policy", "retention.ms", "segment.bytes")]
    assert found == ["delete", "-1", "52428800"]


def test_scenario_041_a_repartition_topic_may_have_a_fixed_partition_count(scene: Scene) -> None:
    between, store = scene.named("r"), scene.named("c")
    scene.topology = topology(
        subtopology("0", ["i3"], sinks=[between]),
        subtopology("1", [], changelogs=[store], repartitions=[internal(between, 7)]),
    )
    a = scene.member("a")
    a.join()
    assert a.beat_for_tasks().epoch_and_tasks == (3, {"0": [0, 1, 2], "1": [0, 1, 2, 3, 4, 5, 6]})
    assert [scene.partitions_of(name) for name in (between, store)] == [7, 7]


def test_scenario_042_copartitioned_sources_with_different_partition_counts_are_reported(scene: Scene) -> None:
    reply = scene.member("a").join(topology(subtopology("0", ["i3", "i6"], copartitions=[([0, 1], [])])))
    assert (reply.epoch_and_tasks, reply.statuses) == ((2, NOTHING), [WRONGLY_PARTITIONED])
    assert reply.details == ["Following topics do not have the same number of partitions: [{i3=3, i6=6}]"]
    assert scene.state == ("NotReady", 2, 2)


def test_scenario_043_a_repartition_topic_follows_the_source_beside_it(scene: Scene) -> None:
    between = scene.named("r")
    scene.topology = topology(
        subtopology("0", ["i6"], sinks=[between]),
        subtopology("1", ["i3"], repartitions=[between], copartitions=[([0], [0])]),
    )
    a = scene.member("a")
    a.join()
    assert a.beat_for_tasks().epoch_and_tasks == (3, {"0": [0, 1, 2, 3, 4, 5], "1": [0, 1, 2]})
    assert scene.partitions_of(between) == 3


def test_scenario_044_a_fixed_partition_count_that_differs_from_the_source_is_reported(scene: Scene) -> None:
    between = scene.named("r")
    reply = scene.member("a").join(
        topology(
            subtopology("0", ["i6"], sinks=[between]),
            subtopology("1", ["i3"], repartitions=[internal(between, 5)], copartitions=[([0], [0])]),
        )
    )
    assert reply.statuses == [WRONGLY_PARTITIONED]
    assert reply.details == [
        (
            f"Number of partitions [5] of repartition topic [{between}] "
            "doesn't match number of partitions [3] of the source topic."
        )
    ]


def test_scenario_045_fixed_repartition_topics_with_different_partition_counts_are_reported(scene: Scene) -> None:
    one, other = scene.named("r1"), scene.named("r2")
    reply = scene.member("a").join(
        topology(
            subtopology("0", ["i3"], sinks=[one, other]),
            subtopology("1", [], repartitions=[internal(one, 5), internal(other, 4)], copartitions=[([], [0, 1])]),
        )
    )
    assert reply.statuses == [WRONGLY_PARTITIONED]
    assert reply.details == [f"Following topics do not have the same number of partitions: [{{{one}=5, {other}=4}}]"]


def test_scenario_046_copartitioned_repartition_topics_have_the_higher_number(scene: Scene) -> None:
    one, other = scene.named("r1"), scene.named("r2")
    scene.topology = topology(
        subtopology("0", ["i3"], sinks=[one]),
        subtopology("1", ["i6"], sinks=[other]),
        subtopology("2", [], repartitions=[one, other], copartitions=[([], [0, 1])]),
    )
    a = scene.member("a")
    a.join()
    tasks = {"0": [0, 1, 2], "1": [0, 1, 2, 3, 4, 5], "2": [0, 1, 2, 3, 4, 5]}
    assert a.beat_for_tasks().epoch_and_tasks == (3, tasks)
    assert [scene.partitions_of(name) for name in (one, other)] == [6, 6]


NO_SINK = (
    "Failed to compute number of partitions for all repartition topics, because a repartition source topic is never "
    "used as a sink topic."
)
LOOP = (
    "Failed to compute number of partitions for all repartition topics. There may be loops in the topology that "
    "cannot be resolved."
)


@pytest.mark.parametrize(
    ("requested", "message"),
    [
        (topology(subtopology("0", [], repartitions=["r"])), NO_SINK),
        (
            topology(
                subtopology("0", [], repartitions=["r1"], sinks=["r2"]),
                subtopology("1", [], repartitions=["r2"], sinks=["r1"]),
            ),
            LOOP,
        ),
        (topology(subtopology("0", [])), "No source topics found for subtopology 0"),
    ],
    ids=["no sink", "a loop", "no source"],
)
def test_scenario_047_a_topology_without_partition_counts_is_refused(
    scene: Scene, requested: Topology, message: str
) -> None:
    assert scene.member("a").join(requested).refused == (INVALID_TOPOLOGY, message)
    assert scene.described().error_code == ErrorCode.GROUP_ID_NOT_FOUND.value


def test_scenario_048_an_existing_changelog_with_another_partition_count_is_reported(scene: Scene) -> None:
    store = scene.make_source("st", 9)
    reply = scene.member("a").join(topology(subtopology("0", ["i3"], changelogs=[store])))
    assert (reply.epoch_and_tasks, reply.statuses) == ((2, NOTHING), [WRONGLY_PARTITIONED])
    assert reply.details == [f"Existing topic {store} has different number of partitions: expected 3, found 9"]
    assert scene.state == ("NotReady", 2, 2)


def test_scenario_049_failures_to_create_topics_are_reported(scene: Scene) -> None:
    wrong = internal(scene.named("wrong"), cleanup_policy="nonsense")
    scene.topology = topology(subtopology("0", ["i3"], changelogs=[wrong]))
    a = scene.member("a")
    missing = a.join()
    assert missing.statuses == [MISSING_INTERNAL]
    assert "Creation failed" not in missing.details[0]
    failed = a.beat_until(lambda reply: "Creation failed" in reply.details[0])
    assert failed.statuses == [MISSING_INTERNAL]
    assert failed.details[0].startswith(
        f"Internal topics are missing: {wrong.name}; Creation failed: {wrong.name} "
        "(Invalid value nonsense for configuration cleanup.policy: "
    )
    forgotten = a.beat_until(lambda reply: "Creation failed" not in reply.details[0])
    assert forgotten.details == [f"Internal topics are missing: {wrong.name}"]


def test_scenario_049_a_topic_with_more_replicas_than_brokers_is_not_created(scene: Scene) -> None:
    scene.topology = topology(subtopology("0", ["i3"], changelogs=[internal(scene.named("c"), 0, 3)]))
    a = scene.member("a")
    a.join()
    failed = a.beat_until(lambda reply: "Creation failed" in reply.details[0])
    assert failed.details[0].startswith(
        f"Internal topics are missing: {scene.named('c')}; Creation failed: {scene.named('c')} "
        "(Unable to replicate the partition 3 time(s): "
    )


def test_scenario_050_at_most_three_missing_topics_are_named(scene: Scene) -> None:
    names = [scene.named(f"c{number}") for number in range(5)]
    reply = scene.member("a").join(topology(subtopology(changelogs=names)))
    assert reply.statuses == [MISSING_INTERNAL]
    match = re.fullmatch(r"Internal topics are missing: (\S+), (\S+), (\S+) and 2 additional topics", reply.details[0])
    assert match is not None
    assert len(set(match.groups()) & set(names)) == 3


def test_scenario_051_a_member_cannot_join_with_another_topology(scene: Scene) -> None:
    scene.topology = topology(subtopology(), epoch=3)
    scene.member("a").join()
    c = scene.member("c")
    assert c.join(topology(subtopology("0", ["i4", "i3"]), epoch=3)).refused == NO_UPDATES
    assert c.join(topology(subtopology(), epoch=4)).refused == NO_UPDATES
    stale = c.join(topology(subtopology("7", ["i3"]), epoch=1))
    assert (stale.epoch_and_tasks, stale.statuses) == ((3, NOTHING), [STALE])
    assert stale.details == ["The member's topology epoch 1 is behind the group's topology epoch 3."]
    assert c.beat().statuses == [STALE]
    assert c.described().topology_epoch == 1


def test_scenario_052_a_stale_member_gets_tasks(scene: Scene) -> None:
    scene.topology = topology(subtopology(), epoch=3)
    a, c = scene.member("a"), scene.member("c")
    a.join()
    c.join(topology(subtopology("7", ["i3"]), epoch=1))
    assert a.beat().epoch_and_tasks == (2, {"0": [0, 1]})
    assert a.beat({"0": [0, 1]}).epoch_and_tasks == (3, None)
    given = c.beat()
    assert (given.epoch_and_tasks, given.statuses) == ((3, {"0": [2, 3]}), [STALE])


def test_scenario_053_the_order_of_the_source_topics_counts(scene: Scene) -> None:
    scene.topology = topology(subtopology("0", ["i3", "i4"]))
    scene.member("a").join()
    assert scene.member("c").join(topology(subtopology("0", ["i4", "i3"]))).refused == NO_UPDATES


def test_scenario_054_an_empty_group_keeps_its_topology(scene: Scene) -> None:
    scene.topology = topology(subtopology(), epoch=3)
    a = scene.member("a")
    a.join()
    a.leave()
    assert a.join(topology(subtopology(), epoch=9)).refused == NO_UPDATES
    assert a.join(topology(subtopology(), epoch=0)).statuses == [STALE]


def test_scenario_127_a_topology_may_have_the_highest_epoch(scene: Scene) -> None:
    assert scene.member("a").join(topology(subtopology(), epoch=2**31 - 1)).epoch_and_tasks == (2, ALL)


def test_scenario_128_one_topic_is_the_source_of_two_subtopologies(scene: Scene) -> None:
    requested = topology(subtopology("0", ["i3"]), subtopology("1", ["i3"]))
    assert scene.member("a").join(requested).epoch_and_tasks == (2, {"0": [0, 1, 2], "1": [0, 1, 2]})


def test_scenario_129_the_order_of_subtopologies_does_not_count(scene: Scene) -> None:
    stores = [scene.named("z"), scene.named("y")]
    one, other = subtopology("0", ["i4", "i3"], changelogs=stores), subtopology("1", ["i6"])
    a = scene.member("a")
    assert a.join(topology(one, other)).code is ErrorCode.NONE
    assert a.join(topology(one, other)).code is ErrorCode.NONE
    assert a.join(topology(other, one)).code is ErrorCode.NONE
    in_order = subtopology("0", ["i3", "i4"], changelogs=sorted(stores))
    assert a.join(topology(in_order, other)).refused == NO_UPDATES


def test_scenario_055_a_deleted_changelog_is_created_again(scene: Scene) -> None:
    changelog = scene.named("c")
    scene.topology = topology(subtopology(changelogs=[changelog]))
    a = scene.member("a")
    a.join()
    assert a.beat_for_tasks().epoch_and_tasks == (3, ALL)
    scene.delete_topic(changelog)
    missing = a.beat_until(lambda reply: reply.statuses == [MISSING_INTERNAL])
    assert missing.epoch_and_tasks == (3, NOTHING)
    again = a.beat_until(lambda reply: reply.statuses == [] and reply.active == ALL, active={})
    assert again.epoch == 5
    assert scene.partitions_of(changelog) == 4


def test_scenario_056_a_recreated_source_topic_raises_the_epoch(scene: Scene) -> None:
    source = scene.make_source("s", 2)
    scene.topology = topology(subtopology("0", [source]))
    a = scene.member("a")
    assert a.join().epoch_and_tasks == (2, {"0": [0, 1]})
    scene.delete_topic(source)
    scene.wait_until_coordinator_misses(source)
    scene.make_source("s", 2)
    assert a.beat().epoch_and_tasks == (3, None)
    assert a.assigned == ({"0": [0, 1]}, {})


def test_scenario_057_a_member_asks_every_member_to_shut_down(scene: Scene) -> None:
    a, c = with_two_members(scene)
    reply = a.beat(shutdown_application=True)
    assert (reply.epoch_and_tasks, reply.statuses) == ((3, None), [SHUTDOWN])
    assert c.beat().statuses == [SHUTDOWN]
    assert a.beat().statuses == [SHUTDOWN]
    a.leave()
    assert c.beat().statuses == [SHUTDOWN]
    c.leave()
    assert scene.member("d").join().statuses == []


def test_scenario_058_a_member_that_leaves_asks_the_others_to_shut_down(scene: Scene) -> None:
    a, c = with_two_members(scene)
    a.leave(shutdown_application=True)
    assert c.beat().statuses == [SHUTDOWN]


def test_scenario_130_statuses_have_an_order(scene: Scene) -> None:
    scene.configure(assignment_interval_ms=15_000)
    wrong = internal(scene.named("wrong"), cleanup_policy="nonsense")
    scene.topology = topology(subtopology(changelogs=[wrong]), epoch=2)
    scene.member("a").join()
    c = scene.member("c")
    assert c.join(topology(subtopology(), epoch=1)).statuses == [STALE, DELAYED, MISSING_INTERNAL]
    assert c.beat(shutdown_application=True).statuses == [STALE, DELAYED, MISSING_INTERNAL, SHUTDOWN]


def test_a_member_revokes_tasks_although_the_topology_is_not_ready(scene: Scene) -> None:
    changelog = scene.named("c")
    scene.topology = topology(subtopology(changelogs=[changelog]))
    a, c = scene.member("a"), scene.member("c")
    a.join()
    a.beat_for_tasks()
    revoke_tasks(scene, a, c)
    scene.delete_topic(changelog)
    assert a.beat_until(lambda reply: reply.statuses == [MISSING_INTERNAL], active={"0": [0, 1]}).active == NOTHING
