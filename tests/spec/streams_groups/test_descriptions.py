"""Tests descriptions of a streams group's topology (KIP-1331; docs/spec/streams-groups.md#s10, #s13-7)."""

import pytest

from odradek.broker.facts.streams_groups import streams_facts
from odradek.broker.groups.common.outcome import (
    CLEANUP_CYCLES,
    CLEANUP_ELIGIBLE,
    DESCRIPTIONS_DELETED,
    DESCRIPTIONS_SET,
    GroupConfig,
    StreamsConfig,
)
from odradek.broker.groups.streams.descriptions import DescriptionStatus, pause_after
from odradek.broker.metadata.image import MetadataImage
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.streams_group_metadata_value import StreamsGroupMetadataValue
from odradek.protocol.messages.streams_group_topology_description_update_request import (
    StreamsGroupTopologyDescriptionUpdateRequest,
    TopologyDescription,
    TopologyDescriptionGlobalStore,
    TopologyDescriptionNode,
    TopologyDescriptionSubtopology,
)
from tests.support.group_scene import GROUP
from tests.support.streams_scene import StreamsScene, subtopology, topology

E = ErrorCode
SOURCE, PROCESSOR, SINK = 1, 2, 3


def scene_with_store() -> StreamsScene:
    scene = StreamsScene()
    scene.config = GroupConfig(streams=StreamsConfig(keeps_descriptions=True))
    scene.restart()
    return scene


def node(name: str, node_type: int) -> TopologyDescriptionNode:
    return TopologyDescriptionNode(name=name, node_type=node_type)


def description(*nodes: TopologyDescriptionNode) -> TopologyDescription:
    return TopologyDescription(subtopologies=[TopologyDescriptionSubtopology(subtopology_id="0", nodes=list(nodes))])


def push(
    scene: StreamsScene,
    sent: TopologyDescription | None = None,
    *,
    member: str = "a",
    group: str = GROUP,
    epoch: int = 0,
) -> tuple[int, str | None]:
    request = StreamsGroupTopologyDescriptionUpdateRequest(
        group_id=group,
        member_id=member,
        topology_epoch=epoch,
        topology_description=description(node("n", SOURCE)) if sent is None else sent,
    )
    try:
        scene.turn(lambda core: core.begin_description(request, scene.now_ms))
        scene.turn(lambda core: core.description_stored(request, scene.now_ms))
    except KafkaError as error:
        return error.code.value, error.message
    return E.NONE.value, None


def is_asked(scene: StreamsScene) -> bool:
    assert scene.last is not None
    return scene.last.topology_description_required


def shown(scene: StreamsScene) -> tuple[DescriptionStatus, list[str]]:
    found = scene.core.describe_streams_group(GROUP, includes_description=True)
    description = found.topology_description
    names = (
        []
        if description is None
        else [each.name for subtopology in description.subtopologies for each in subtopology.nodes]
    )
    return DescriptionStatus(found.topology_description_status), names


def stored_epochs(scene: StreamsScene, since: int) -> list[int]:
    values = [record.value for record in scene.written(since)]
    return [value.stored_description_topology_epoch for value in values if isinstance(value, StreamsGroupMetadataValue)]


def test_without_a_store_no_member_is_asked_for_a_description() -> None:
    scene = StreamsScene()
    scene.member("a")
    assert not is_asked(scene)


def test_scenario_110_one_heartbeat_is_asked() -> None:
    scene = scene_with_store()
    scene.member("a")
    assert is_asked(scene)
    scene.beat("a")
    assert not is_asked(scene)
    assert shown(scene) == (DescriptionStatus.NOT_STORED, [])


def test_a_member_with_version_0_is_not_asked_for_a_description() -> None:
    scene = scene_with_store()
    scene.member("a", version=0)
    assert not is_asked(scene)
    scene.beat("a")
    assert is_asked(scene)


def test_a_member_with_a_stale_topology_is_not_asked_for_a_description() -> None:
    scene = scene_with_store()
    scene.member("a", reads=topology(subtopology("0", ["i4"]), epoch=3), version=0)
    scene.member("c")
    assert not is_asked(scene)


def test_scenario_115_members_are_asked_again_only_after_a_pause_that_doubles() -> None:
    scene = scene_with_store()
    scene.member("a")
    times = []
    for second in range(1, 100):
        scene.advance(1_000)
        scene.beat("a")
        if is_asked(scene):
            times.append(second)
    assert times == [30, 90]


@pytest.mark.parametrize(
    ("requests_sent", "usual_ms"), [(0, 30_000), (1, 60_000), (6, 1_920_000), (7, 3_600_000), (1_000, 3_600_000)]
)
def test_a_pause_is_up_to_a_fifth_shorter_or_longer_and_at_most_an_hour(requests_sent: int, usual_ms: int) -> None:
    limits = []

    def drawn(number: int) -> int:
        limits.append(number)
        return number - 1

    assert pause_after(requests_sent, lambda limit: 0) == usual_ms * 8 // 10
    assert pause_after(requests_sent, drawn) == min(usual_ms * 12 // 10 - 1, 3_600_000)
    assert limits == [usual_ms * 4 // 10]


def test_a_group_is_asked_again_after_the_pause_that_was_drawn() -> None:
    scene = scene_with_store()
    scene.core.registry.random_below = lambda limit: 2_000
    scene.member("a")
    scene.advance(25_999)
    scene.beat("a")
    assert not is_asked(scene)
    scene.advance(1)
    scene.beat("a")
    assert is_asked(scene)


def test_scenario_112_a_description_is_returned_on_request() -> None:
    scene = scene_with_store()
    scene.member("a")
    since = len(scene.log)
    assert push(scene, description(node("in", SOURCE), node("count", PROCESSOR), node("out", SINK))) == (0, None)
    assert stored_epochs(scene, since) == [-2, 0]
    assert scene.state == ("Stable", 2, 2)
    assert shown(scene) == (DescriptionStatus.AVAILABLE, ["in", "count", "out"])
    described = scene.described()
    assert (described.topology_description_status, described.topology_description) == (0, None)
    scene.advance(40_000)
    scene.beat("a")
    assert not is_asked(scene)


def test_an_empty_description_is_stored() -> None:
    scene = scene_with_store()
    scene.member("a")
    assert push(scene, TopologyDescription()) == (0, None)
    assert shown(scene) == (DescriptionStatus.AVAILABLE, [])


def test_after_a_restart_a_member_is_asked_for_a_description_again() -> None:
    scene = scene_with_store()
    scene.member("a")
    push(scene)
    scene.restart()
    assert shown(scene) == (DescriptionStatus.NOT_STORED, [])
    scene.beat("a")
    assert is_asked(scene)


def test_scenario_111_invalid_pushes_are_refused() -> None:
    scene = scene_with_store()
    scene.member("a")
    assert push(scene, group="other") == (E.GROUP_ID_NOT_FOUND.value, "Group other not found.")
    assert push(scene, member="x") == (E.UNKNOWN_MEMBER_ID.value, "Member x is not a member of group billing.")
    what = "Topology epoch 5 does not match the group's current topology epoch 0."
    assert push(scene, epoch=5) == (E.INVALID_REQUEST.value, what)
    assert push(scene, description(node("n", 9))) == (E.INVALID_REQUEST.value, "Unknown topology node type: 9")
    store = TopologyDescriptionGlobalStore(source=node("s", SOURCE), processor=node("p", SINK))
    assert push(scene, TopologyDescription(global_stores=[store])) == (
        E.INVALID_REQUEST.value,
        "Global store must be composed of a source and a processor node.",
    )


def test_scenario_114_the_description_of_a_deleted_group_is_removed_first() -> None:
    scene = scene_with_store()
    scene.member("a")
    push(scene)
    with pytest.raises(KafkaError) as refused:
        scene.core.begin_description_removal(GROUP, scene.now_ms)
    assert refused.value.code is E.NON_EMPTY_GROUP
    scene.beat("a", -1)
    since = len(scene.log)
    assert scene.core.has_description(GROUP)
    scene.turn(lambda core: core.begin_description_removal(GROUP, scene.now_ms))
    scene.turn(lambda core: core.description_removed(GROUP, scene.now_ms))
    assert stored_epochs(scene, since) == [-2, -1]
    assert not scene.core.has_description(GROUP)


def test_the_page_shows_a_description_as_lines() -> None:
    scene = scene_with_store()
    scene.member("a")
    source = TopologyDescriptionNode(name="in", node_type=SOURCE, source_topics=["i4"], successors=["count"])
    counting = TopologyDescriptionNode(name="count", node_type=PROCESSOR, stores=["counts"], successors=["out"])
    sink = TopologyDescriptionNode(name="out", node_type=SINK, sink_topic="results")
    assert push(scene, description(source, counting, sink))[0] == E.NONE.value
    facts = streams_facts(GROUP, scene.core, MetadataImage())
    assert facts.description == [
        "Sub-topology: 0",
        "  Source: in (topics: i4) → count",
        "  Processor: count (stores: counts) → out",
        "  Sink: out (topic: results)",
    ]


def test_stored_and_removed_descriptions_are_counted() -> None:
    scene = scene_with_store()
    scene.member("a")
    push(scene)
    push(scene)
    scene.beat("a", -1)
    scene.turn(lambda core: core.begin_description_removal(GROUP, scene.now_ms))
    scene.turn(lambda core: core.description_removed(GROUP, scene.now_ms))
    assert scene.core.counts == {DESCRIPTIONS_SET: 2, DESCRIPTIONS_DELETED: 1}


def test_a_description_that_expires_with_its_group_is_counted() -> None:
    scene = scene_with_store()
    scene.member("a")
    push(scene)
    scene.turn(lambda core: core.expire(scene.now_ms))
    scene.beat("a", -1)
    scene.turn(lambda core: core.expire(scene.now_ms))
    assert GROUP not in scene.core.registry.groups
    counts = [scene.core.counts[name] for name in (CLEANUP_CYCLES, CLEANUP_ELIGIBLE, DESCRIPTIONS_DELETED)]
    assert counts == [2, 1, 1]
