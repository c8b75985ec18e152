"""Tests a streams group's topology in requests and records (docs/spec/streams-groups.md#s3, #s13-3)."""

import pytest

from odradek.broker.groups.common.group import CoordinatorRecord
from odradek.broker.groups.records import decode_record, encode_record
from odradek.broker.groups.streams.topology import (
    CopartitionGroup,
    Subtopology,
    TopicInfo,
    Topology,
    check_changelogs,
    check_patterns,
    check_topics,
    is_stale,
    joining_topology,
    topology_of,
    topology_value,
)
from odradek.broker.metadata.topic_names import is_valid_topic_name
from odradek.broker.runtime.slices import run_to_end
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages import streams_group_heartbeat_request as wire
from odradek.protocol.messages.streams_group_topology_key import StreamsGroupTopologyKey

COUNT = Topology(
    3,
    {
        "0": Subtopology(
            "0",
            source_topics=("in-a", "in-b"),
            repartition_sinks=("app-counts-repartition",),
            copartition_groups=(CopartitionGroup(source_topics=(0, 1)),),
        ),
        "1": Subtopology(
            "1",
            changelog_topics=(TopicInfo("app-counts-changelog", configs=(("cleanup.policy", "compact"),)),),
            repartition_sources=(TopicInfo("app-counts-repartition", configs=(("retention.ms", "-1"),)),),
        ),
    },
)


def sent(*subtopologies: wire.Subtopology, epoch: int = 0) -> wire.Topology:
    return wire.Topology(epoch=epoch, subtopologies=list(subtopologies))


def reading(*topics: str, subtopology_id: str = "0") -> wire.Subtopology:
    return wire.Subtopology(subtopology_id=subtopology_id, source_topics=list(topics))


def refusal(error: pytest.ExceptionInfo[KafkaError]) -> tuple[ErrorCode, str | None]:
    return error.value.code, error.value.message


def check(topology: wire.Topology, hidden: str = "") -> None:
    run_to_end(check_topics(topology, is_valid_topic_name, lambda name: name != hidden))


def test_a_topology_is_the_same_after_it_was_stored() -> None:
    record = CoordinatorRecord(StreamsGroupTopologyKey(group_id="app"), topology_value(COUNT))
    read = decode_record(*encode_record(record))
    assert read is not None
    assert topology_of(read.value) == COUNT  # type: ignore[arg-type]


def test_required_topics_are_all_but_the_sinks() -> None:
    only_sunk = Topology(0, {"0": Subtopology("0", source_topics=("in",), repartition_sinks=("out",))})
    assert only_sunk.required_topics() == {"in"}
    assert COUNT.required_topics() == {"in-a", "in-b", "app-counts-repartition", "app-counts-changelog"}


def test_the_topics_to_which_the_group_is_subscribed_are_source_and_repartition_topics() -> None:
    assert COUNT.read_topics() == {"in-a", "in-b", "app-counts-repartition"}


# --- The checks of a request, in the order in which they are made.


@pytest.mark.parametrize("name", ["__consumer_offsets", "__share_group_state", "__transaction_state"])
def test_topics_of_kafka_are_no_part_of_a_topology(name: str) -> None:
    with pytest.raises(KafkaError) as error:
        check(sent(reading("in", name)))
    assert refusal(error) == (
        ErrorCode.STREAMS_INVALID_TOPOLOGY,
        f"Use of Kafka internal topics {name} in a Kafka Streams topology is prohibited.",
    )


def test_a_name_that_no_topic_can_have_is_refused_wherever_it_stands() -> None:
    info = wire.TopicInfo(name="a b")
    for subtopology in (
        wire.Subtopology(source_topics=["a b"]),
        wire.Subtopology(repartition_sink_topics=["a b"]),
        wire.Subtopology(repartition_source_topics=[info]),
        wire.Subtopology(state_changelog_topics=[info]),
    ):
        with pytest.raises(KafkaError) as error:
            check(sent(subtopology))
        assert refusal(error) == (
            ErrorCode.STREAMS_INVALID_TOPOLOGY,
            "Topic names a b are not valid topic names.",
        )


def test_scenario_028_internal_topics_are_named_before_invalid_names() -> None:
    with pytest.raises(KafkaError) as error:
        check(sent(reading("a b", "__consumer_offsets")), hidden="__consumer_offsets")
    assert "__consumer_offsets" in str(error.value)


def test_a_hidden_topic_is_refused_without_a_message_that_names_it() -> None:
    with pytest.raises(KafkaError) as error:
        check(sent(reading("in", "hidden")), hidden="hidden")
    assert refusal(error) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, None)
    check(sent(reading("in")), hidden="hidden")


def test_patterns_for_source_topics_are_refused() -> None:
    with pytest.raises(KafkaError) as error:
        check_patterns(sent(wire.Subtopology(source_topic_regex=["in.*"])))
    assert refusal(error) == (
        ErrorCode.INVALID_REQUEST,
        "Regular expressions for source topics are not supported yet.",
    )
    check_patterns(sent(reading("in")))


def test_the_client_does_not_decide_how_many_partitions_a_changelog_has() -> None:
    changelog = wire.TopicInfo(name="c1", partitions=3)
    with pytest.raises(KafkaError) as error:
        check_changelogs(sent(wire.Subtopology(state_changelog_topics=[wire.TopicInfo(name="c0"), changelog])))
    assert refusal(error) == (
        ErrorCode.STREAMS_INVALID_TOPOLOGY,
        "Changelog topic c1 must have an undefined partition count, but it is set to 3.",
    )
    check_changelogs(sent(wire.Subtopology(state_changelog_topics=[wire.TopicInfo(name="c1")])))


def test_scenario_029_a_topology_may_be_empty() -> None:
    assert joining_topology(sent(), None) == Topology(0, {})


def test_two_subtopologies_with_one_id_are_refused() -> None:
    with pytest.raises(KafkaError) as error:
        joining_topology(sent(reading("a"), reading("b")), None)
    assert error.value.code is ErrorCode.STREAMS_INVALID_TOPOLOGY


@pytest.mark.parametrize("epoch", [-1, -5])
def test_scenario_054a_the_first_topology_has_no_negative_epoch(epoch: int) -> None:
    with pytest.raises(KafkaError) as error:
        joining_topology(sent(reading("a"), epoch=epoch), None)
    assert error.value.code is ErrorCode.STREAMS_INVALID_TOPOLOGY
    assert joining_topology(sent(epoch=2_147_483_647), None).epoch == 2_147_483_647


# --- Members that join a group with an existing topology.

GROUP = topology_of(sent(reading("a", "b"), reading("c", subtopology_id="1"), epoch=3))
UPDATE = ErrorCode.INVALID_REQUEST, "Topology updates are not supported yet."


def test_a_topology_with_equal_content_and_epoch_may_join() -> None:
    assert joining_topology(sent(reading("a", "b"), reading("c", subtopology_id="1"), epoch=3), GROUP) == GROUP


@pytest.mark.parametrize(
    "other",
    [
        sent(reading("a"), epoch=3),
        sent(reading("a", "b"), reading("c", subtopology_id="1"), epoch=4),
        sent(epoch=4),
    ],
    ids=["other content", "higher epoch", "both"],
)
def test_scenario_051_a_topology_does_not_change(other: wire.Topology) -> None:
    with pytest.raises(KafkaError) as error:
        joining_topology(other, GROUP)
    assert refusal(error) == UPDATE


@pytest.mark.parametrize("epoch", [1, -1])
def test_scenario_051_a_lower_epoch_joins_with_any_content_and_is_stale(epoch: int) -> None:
    topology = joining_topology(sent(reading("z"), epoch=epoch), GROUP)
    assert is_stale(topology.epoch, GROUP)
    assert not is_stale(3, GROUP)


@pytest.mark.parametrize("topics", [("b", "a"), ("a",)])
def test_scenario_053_the_order_of_a_list_is_content(topics: tuple[str, ...]) -> None:
    with pytest.raises(KafkaError) as error:
        joining_topology(sent(reading(*topics), reading("c", subtopology_id="1"), epoch=3), GROUP)
    assert refusal(error) == UPDATE


def test_scenario_054c_the_order_of_subtopologies_is_no_content() -> None:
    exchanged = sent(reading("c", subtopology_id="1"), reading("a", "b"), epoch=3)
    assert joining_topology(exchanged, GROUP) == GROUP
