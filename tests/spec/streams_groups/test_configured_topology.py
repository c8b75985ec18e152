"""Tests the topics and tasks that the broker derives from a topology (docs/spec/streams-groups.md#s4, #s13-3)."""

from collections.abc import Iterable, Mapping

import pytest

from odradek.broker.groups.streams.configured_topology import (
    ConfiguredTopology,
    configure,
    described_subtopologies,
    missing_topics_status,
)
from odradek.broker.groups.streams.status import StatusCode
from odradek.broker.groups.streams.tasks import TaskRoles
from odradek.broker.groups.streams.topology import (
    CopartitionGroup,
    Subtopology,
    TopicInfo,
    Topology,
    joining_topology,
)
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages import streams_group_heartbeat_request as wire

MISSING_SOURCES = StatusCode.MISSING_SOURCE_TOPICS
WRONG = StatusCode.INCORRECTLY_PARTITIONED_TOPICS
MISSING = StatusCode.MISSING_INTERNAL_TOPICS
INVALID = ErrorCode.STREAMS_INVALID_TOPOLOGY
LOOP = (
    "Failed to compute number of partitions for all repartition topics. There may be loops in the topology that cannot "
    "be resolved."
)
NO_SINK = (
    "Failed to compute number of partitions for all repartition topics, because a repartition source topic is never "
    "used as a sink topic."
)
IN = {"in2": 2, "in3": 3, "in6": 6, "in9": 9}


def sub(
    subtopology_id: str,
    sources: str = "",
    *,
    sinks: str = "",
    repartition: str = "",
    stores: str = "",
    together: Iterable[tuple[tuple[int, ...], tuple[int, ...]]] = (),
) -> Subtopology:
    """Returns a subtopology. In the arguments, topic names are separated by spaces.

    repartition  repartition topics; `r=5` fixes the number of partitions of r
    together     copartition groups
    """
    return Subtopology(
        subtopology_id,
        source_topics=tuple(sources.split()),
        repartition_sinks=tuple(sinks.split()),
        repartition_sources=tuple(
            TopicInfo(name, int(count or 0)) for name, _, count in (each.partition("=") for each in repartition.split())
        ),
        changelog_topics=tuple(TopicInfo(name) for name in stores.split()),
        copartition_groups=tuple(CopartitionGroup(sources, (), topics) for sources, topics in together),
    )


def configured(*subtopologies: Subtopology, existing: Mapping[str, int] = IN) -> ConfiguredTopology:
    return configure(Topology(0, {each.subtopology_id: each for each in subtopologies}), existing)


def decided(*subtopologies: Subtopology, existing: Mapping[str, int] = IN) -> dict[str, int]:
    topology = configured(*subtopologies, existing=existing)
    return {name: topic.partitions for name, topic in sorted(topology.internal.items())}


def refused(*subtopologies: Subtopology) -> tuple[ErrorCode, str | None]:
    with pytest.raises(KafkaError) as error:
        configured(*subtopologies)
    return error.value.code, error.value.message


# --- Source topics.


@pytest.mark.parametrize(
    ("sources", "named"),
    [
        ("b", "b"),
        ("c b", "b, c"),
        ("d c b", "b, c, d"),
        ("e d c b", "b, c, d and 1 additional topics"),
        ("f e d c b", "b, c, d and 2 additional topics"),
    ],
)
def test_scenario_034_missing_source_topics_are_named_sorted_three_at_most(sources: str, named: str) -> None:
    topology = configured(sub("0", f"in3 {sources}"))
    assert topology.status == (MISSING_SOURCES, f"Source topics {named} are missing.")
    assert not topology.is_ready
    assert topology.task_counts == {}
    assert topology.missing == ()


def test_scenario_035_and_036_there_is_a_task_for_each_partition_of_the_largest_source() -> None:
    assert configured(sub("0", "in4"), existing={"in4": 4}).task_counts == {"0": 4}
    assert configured(sub("0", "in4"), existing={"in4": 5}).task_counts == {"0": 5}
    assert configured(sub("0", "in3 in6")).task_counts == {"0": 6}


def test_missing_source_topics_are_named_before_a_topology_that_cannot_be_computed() -> None:
    assert configured(sub("0", "nope"), sub("1", repartition="r")).status == (
        MISSING_SOURCES,
        "Source topics nope are missing.",
    )


def test_a_topology_without_subtopologies_is_ready() -> None:
    assert configured().is_ready
    assert configured().task_counts == {}


# --- Internal topics.


def test_scenario_038_a_missing_changelog_has_a_partition_for_each_task() -> None:
    topology = configured(sub("0", "in3", stores="c"))
    assert topology.status == (MISSING, "Internal topics are missing: c")
    assert topology.missing == [TopicInfo("c", 3)]
    assert topology.task_counts == {"0": 3}
    assert configured(sub("0", "in3", stores="c"), existing={"in3": 3, "c": 3}).is_ready


def test_missing_topics_keep_their_replication_factor_and_configs() -> None:
    info = TopicInfo("c", 0, 3, (("cleanup.policy", "compact"), ("cleanup.policy", "delete")))
    topology = configured(Subtopology("0", source_topics=("in3",), changelog_topics=(info,)))
    assert topology.missing == [TopicInfo("c", 3, 3, info.configs)]


def test_scenario_040_the_largest_source_of_the_sink_decides() -> None:
    subtopologies = sub("0", "in3 in6", sinks="r"), sub("1", repartition="r", stores="c")
    assert decided(*subtopologies) == {"c": 6, "r": 6}
    assert configured(*subtopologies).task_counts == {"0": 6, "1": 6}


def test_scenario_041_a_number_that_the_client_fixes_counts() -> None:
    subtopologies = sub("0", "in3", sinks="r"), sub("1", repartition="r=7", stores="c")
    assert decided(*subtopologies) == {"c": 7, "r": 7}
    assert configured(*subtopologies).task_counts == {"0": 3, "1": 7}


def test_a_fixed_repartition_topic_needs_no_sink() -> None:
    assert decided(sub("1", "in3", repartition="r=4")) == {"r": 4}


def test_one_of_two_partition_counts_for_one_topic_is_used() -> None:
    assert decided(sub("9", repartition="r=4"), sub("10", repartition="r=5")) == {"r": 4}
    assert decided(sub("9", repartition="r"), sub("10", repartition="r=4")) == {"r": 4}


def test_the_first_subtopology_that_knows_a_number_decides_even_if_a_later_one_has_a_larger() -> None:
    assert decided(sub("0", "in3", sinks="r"), sub("1", "in6", sinks="r"), sub("2", repartition="r")) == {"r": 3}
    assert decided(sub("1", "in3", sinks="r"), sub("0", "in6", sinks="r"), sub("2", repartition="r")) == {"r": 6}


@pytest.mark.parametrize(("reader", "feeder", "count"), [("0", "1", 3), ("1", "0", 6), ("9", "10", 3), ("10", "9", 6)])
def test_subtopologies_are_visited_in_hash_order(reader: str, feeder: str, count: int) -> None:
    subtopologies = (
        sub(reader, "in3", repartition="r1", sinks="r2"),
        sub(feeder, "in6", sinks="r1"),
        sub("z", repartition="r2"),
    )
    assert decided(*subtopologies) == decided(*reversed(subtopologies)) == {"r1": 6, "r2": count}


def test_a_subtopology_that_knows_nothing_yet_does_not_decide() -> None:
    subtopologies = (
        sub("0", repartition="x", sinks="r"),
        sub("1", "in6", sinks="r"),
        sub("2", "in9", sinks="x"),
        sub("3", repartition="r"),
    )
    assert decided(*subtopologies) == {"r": 6, "x": 9}


def test_a_subtopology_may_write_to_its_own_repartition_topic() -> None:
    assert decided(sub("1", "in3", repartition="r", sinks="r")) == {"r": 3}
    assert decided(
        sub("0", "in3", repartition="r1", sinks="r1 r2"), sub("1", "in6", sinks="r1"), sub("2", repartition="r2")
    ) == {"r1": 3, "r2": 3}


def test_numbers_follow_a_long_chain_in_any_order() -> None:
    chain = [sub(f"{place}", repartition=f"r{place}", sinks=f"r{place + 1}") for place in range(200)]
    ends = sub("first", "in6", sinks="r0"), sub("last", repartition="r200")
    assert set(decided(*chain, *ends).values()) == {6}
    assert set(decided(*reversed(chain), *ends).values()) == {6}


# --- Copartition groups.


def test_scenario_042_source_topics_of_a_copartition_group_must_agree() -> None:
    different = "Following topics do not have the same number of partitions: [{in3=3, in6=6}]"
    assert configured(sub("0", "in6 in3", together=[((0, 1), ())])).status == (WRONG, different)
    assert configured(sub("0", "in6 in3", repartition="r=5", together=[((0, 1), (0,))])).status == (WRONG, different)


def test_the_error_names_the_first_copartition_group_that_differs() -> None:
    assert configured(
        sub("9", "in3 in6", together=[((0, 1), ())]), sub("10", "in9 in2", together=[((0, 1), ())])
    ).status == (WRONG, "Following topics do not have the same number of partitions: [{in3=3, in6=6}]")
    assert configured(sub("0", "in3 in6 in2 in9", together=[((3, 2), ()), ((0, 1), ())])).status == (
        WRONG,
        "Following topics do not have the same number of partitions: [{in2=2, in9=9}]",
    )


def test_scenario_043_a_repartition_topic_gets_the_number_of_the_source() -> None:
    subtopologies = sub("0", "in6", sinks="r"), sub("1", "in3", repartition="r", together=[((0,), (0,))])
    assert decided(*subtopologies) == {"r": 3}
    assert configured(*subtopologies).task_counts == {"0": 6, "1": 3}


def test_scenario_044_a_fixed_number_that_differs_from_the_source_is_wrong() -> None:
    assert configured(
        sub("0", "in6", sinks="r"), sub("1", "in3", repartition="r=5", together=[((0,), (0,))])
    ).status == (
        WRONG,
        "Number of partitions [5] of repartition topic [r] doesn't match number of partitions [3] of the source topic.",
    )


def test_scenario_045_two_fixed_numbers_must_agree() -> None:
    assert configured(
        sub("0", "in6", sinks="r1 r2"), sub("1", repartition="r2=4 r1=5", together=[((), (0, 1))])
    ).status == (WRONG, "Following topics do not have the same number of partitions: [{r1=5, r2=4}]")


def test_scenario_046_without_a_fixed_number_the_largest_is_used() -> None:
    assert decided(
        sub("0", "in3", sinks="r1"),
        sub("1", "in6", sinks="r2"),
        sub("2", repartition="r1 r2", together=[((), (0, 1))]),
    ) == {"r1": 6, "r2": 6}


def test_a_fixed_number_counts_more_than_a_larger_one() -> None:
    subtopologies = sub("0", "in6", sinks="r s"), sub("1", repartition="r=5 s", together=[((), (0, 1))])
    assert decided(*subtopologies) == {"r": 5, "s": 5}


def test_copartition_groups_are_applied_one_after_the_other() -> None:
    feeders = sub("0", "in6", sinks="r"), sub("2", "in2", sinks="s")
    assert decided(*feeders, sub("1", "in3", repartition="r s", together=[((0,), (0,)), ((), (0, 1))])) == {
        "r": 3,
        "s": 3,
    }
    assert decided(*feeders, sub("1", "in3", repartition="r s", together=[((), (0, 1)), ((0,), (0,))])) == {
        "r": 3,
        "s": 6,
    }
    assert decided(
        sub("0", "in6", sinks="r"),
        sub("9", "in3", repartition="r", together=[((0,), (0,))]),
        sub("10", "in2", repartition="r", together=[((0,), (0,))]),
    ) == {"r": 2}


def test_topics_behind_a_copartitioned_one_keep_their_numbers() -> None:
    assert decided(
        sub("0", "in6", sinks="r"),
        sub("1", "in3", repartition="r", sinks="s", together=[((0,), (0,))]),
        sub("2", repartition="s"),
    ) == {"r": 3, "s": 6}


def test_an_existing_repartition_topic_counts_with_its_number_in_a_group() -> None:
    topology = configured(
        sub("0", "in3", sinks="r s"),
        sub("1", "in3", repartition="r s", together=[((), (0, 1))]),
        existing=IN | {"r": 5},
    )
    assert topology.missing == [TopicInfo("s", 5)]
    assert topology.task_counts == {"0": 3, "1": 5}


def test_an_empty_copartition_group_has_no_effect() -> None:
    assert configured(sub("0", "in3", together=[((), ())])).is_ready


# --- Topologies whose tasks cannot be computed.


def test_scenario_047_a_repartition_topic_without_a_sink_is_refused() -> None:
    assert refused(sub("0", "in3", repartition="r")) == (INVALID, NO_SINK)
    assert refused(sub("0", stores="c"), sub("1", repartition="r")) == (INVALID, NO_SINK)
    assert refused(sub("0", "in3 in6", together=[((0, 1), ())]), sub("1", repartition="r")) == (INVALID, NO_SINK)


def test_scenario_047_a_loop_of_subtopologies_is_refused() -> None:
    assert refused(sub("0", repartition="r", sinks="r")) == (INVALID, LOOP)
    assert refused(sub("0", repartition="a", sinks="b"), sub("1", repartition="b", sinks="a")) == (INVALID, LOOP)
    assert refused(sub("0", repartition="x"), sub("1", repartition="r", sinks="r")) == (INVALID, LOOP)
    assert refused(sub("0", stores="c"), sub("1", repartition="r", sinks="r")) == (INVALID, LOOP)


def test_scenario_047_a_subtopology_without_sources_is_refused() -> None:
    assert refused(sub("0")) == (INVALID, "No source topics found for subtopology 0")
    assert refused(sub("10", stores="c"), sub("9")) == (INVALID, "No source topics found for subtopology 9")
    assert refused(sub("0", sinks="r"), sub("1", repartition="r=4")) == (
        INVALID,
        "No source topics found for subtopology 0",
    )
    assert refused(sub("0", sinks="r"), sub("1", repartition="r")) == (INVALID, LOOP)
    assert refused(sub("0", sinks="unread")) == (INVALID, LOOP)


@pytest.mark.parametrize(
    "subtopology",
    [
        wire.Subtopology(source_topics=["in3"], copartition_groups=[wire.CopartitionGroup(source_topics=[1])]),
        wire.Subtopology(source_topics=["in3"], copartition_groups=[wire.CopartitionGroup(source_topics=[-1])]),
        wire.Subtopology(source_topics=["in3"], copartition_groups=[wire.CopartitionGroup(source_topic_regex=[0])]),
        wire.Subtopology(
            source_topics=["in3"], copartition_groups=[wire.CopartitionGroup(repartition_source_topics=[0])]
        ),
        wire.Subtopology(source_topics=["in3"], repartition_source_topics=[wire.TopicInfo(name="r", partitions=-4)]),
    ],
)
def test_numbers_that_cannot_be_right_are_refused_before_topics_are_looked_up(subtopology: wire.Subtopology) -> None:
    with pytest.raises(KafkaError) as error:
        joining_topology(wire.Topology(subtopologies=[subtopology]), None)
    assert error.value.code is INVALID


def test_a_stale_topology_is_not_validated() -> None:
    group = joining_topology(wire.Topology(epoch=3), None)
    wrong = wire.Subtopology(copartition_groups=[wire.CopartitionGroup(source_topics=[4])])
    assert joining_topology(wire.Topology(epoch=1, subtopologies=[wrong]), group).epoch == 1


# --- Internal topics that already exist.


def test_scenario_048_an_internal_topic_with_another_partition_count_is_reported() -> None:
    topology = configured(sub("0", "in3", stores="c st"), existing=IN | {"st": 9})
    assert topology.status == (WRONG, "Existing topic st has different number of partitions: expected 3, found 9")
    assert topology.missing == ()
    assert topology.task_counts == {}


def test_an_existing_repartition_topic_decides_how_large_its_changelog_is_expected() -> None:
    both = sub("0", "in3", sinks="r"), sub("1", repartition="r", stores="c1")
    assert configured(*both, existing=IN | {"r": 5}).status == (
        WRONG,
        "Existing topic r has different number of partitions: expected 3, found 5",
    )
    assert configured(*both, existing=IN | {"r": 3, "c1": 4}).status == (
        WRONG,
        "Existing topic c1 has different number of partitions: expected 3, found 4",
    )


@pytest.mark.parametrize(
    ("prefix", "count", "named"),
    [
        ("g1054704-9-c", 4, "g1054704-9-c1, g1054704-9-c3, g1054704-9-c2 and 1 additional topics"),
        ("g1054704-10-c", 5, "g1054704-10-c2, g1054704-10-c3, g1054704-10-c1 and 2 additional topics"),
        ("g1054704-11-c", 9, "g1054704-11-c4, g1054704-11-c3, g1054704-11-c2 and 6 additional topics"),
    ],
)
def test_scenario_050_missing_internal_topics_are_named_in_hash_order(prefix: str, count: int, named: str) -> None:
    names = " ".join(f"{prefix}{number}" for number in range(count, 0, -1))
    assert configured(sub("0", "in3", stores=names)).status == (MISSING, f"Internal topics are missing: {named}")


def test_topics_that_the_member_may_not_create_are_named() -> None:
    assert missing_topics_status(["ag-rp", "ag-st"], unauthorized=["ag-st"]).detail == (
        "Internal topics are missing: ag-rp, ag-st; Unauthorized to CREATE on topics ag-st."
    )


def test_scenario_049_failures_of_the_creation_are_named_three_at_most() -> None:
    failures = dict.fromkeys("abcde", "why")
    assert missing_topics_status(["a"], failures={"a": "Invalid value nonsense"}).detail == (
        "Internal topics are missing: a; Creation failed: a (Invalid value nonsense)."
    )
    assert missing_topics_status([*failures], failures=failures).detail == (
        "Internal topics are missing: a, b, c and 2 additional topics; "
        "Creation failed: a (why), b (why), c (why) and 2 more."
    )


def test_scenario_054b_topics_may_be_named_twice() -> None:
    assert configured(sub("0", "in3"), sub("1", "in3 in6")).task_counts == {"0": 3, "1": 6}
    assert configured(sub("0", "in3", sinks="in6"), sub("1", "in6", repartition="in6=6")).is_ready
    assert configured(sub("0", "in6", stores="in6")).is_ready
    assert configured(sub("0", "in6 in3", stores="in3")).status == (
        WRONG,
        "Existing topic in3 has different number of partitions: expected 6, found 3",
    )
    assert decided(sub("0", "in6", stores="c"), sub("1", "in3", stores="c")) == {"c": 3}


def test_scenario_055_a_deleted_changelog_is_missing_again() -> None:
    subtopology = sub("0", "in3", stores="c")
    assert configured(subtopology, existing={"in3": 3, "c": 3}).is_ready
    assert configured(subtopology, existing={"in3": 3}).missing == [TopicInfo("c", 3)]


# --- Tasks that members report as owned.


@pytest.mark.parametrize(
    ("owned", "message"),
    [
        (TaskRoles(active={"9": frozenset({0})}), "Subtopology 9 does not exist in the topology."),
        (
            TaskRoles(standby={"0": frozenset({7})}),
            "Task 7 for subtopology 0 is invalid. Number of tasks for this subtopology: 3",
        ),
        (
            TaskRoles(warmup={"0": frozenset({-1})}),
            "Task -1 for subtopology 0 is invalid. Number of tasks for this subtopology: 3",
        ),
    ],
)
def test_a_reported_task_must_be_one_of_the_topology_once_that_is_ready(owned: TaskRoles, message: str) -> None:
    ready = configured(sub("0", "in3"))
    with pytest.raises(KafkaError) as error:
        ready.check_owned(owned)
    assert (error.value.code, error.value.message) == (ErrorCode.INVALID_REQUEST, message)
    ready.check_owned(TaskRoles(active={"0": frozenset({0, 2})}))
    configured(sub("0", "nope")).check_owned(owned)
    configured(sub("0", "in3", stores="c")).check_owned(owned)


# --- Descriptions.


def test_topics_are_described_sorted_and_with_their_numbers_once_the_topology_is_ready() -> None:
    subtopologies = sub("1", repartition="y z", stores="c2 c1"), sub("0", "in6 in3", sinks="z y")
    missing = configured(*subtopologies)
    ready = configured(*subtopologies, existing=IN | dict.fromkeys(("y", "z", "c1", "c2"), 6))
    first, second = described_subtopologies(ready.topology, ready)
    assert (first.source_topics, first.repartition_sinks) == (("in3", "in6"), ("y", "z"))
    assert second.repartition_sources == (TopicInfo("y", 6), TopicInfo("z", 6))
    assert second.changelog_topics == (TopicInfo("c1", 6), TopicInfo("c2", 6))
    for topology in (missing, None):
        _, second = described_subtopologies(ready.topology, topology)
        assert second.changelog_topics == (TopicInfo("c1", 0), TopicInfo("c2", 0))
