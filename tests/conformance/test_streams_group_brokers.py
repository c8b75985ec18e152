"""Tests streams groups on brokers that no other module uses: first requests, limits, restarts, feature levels and
descriptions.

Rules: docs/spec/streams-groups.md#s2, #s10, #s13-2, #s13-6, #s13-7. On each broker, the tests run in order and build on
each other.
"""

from collections.abc import Iterator

import pytest

from odradek.broker.groups.common.group import CoordinatorRecord
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.streams_group_describe_request import StreamsGroupDescribeRequest
from odradek.protocol.messages.streams_group_heartbeat_request import StreamsGroupHeartbeatRequest
from odradek.protocol.messages.streams_group_metadata_value import StreamsGroupMetadataValue
from odradek.protocol.messages.streams_group_topology_description_update_request import (
    StreamsGroupTopologyDescriptionUpdateRequest,
    TopologyDescription,
    TopologyDescriptionGlobalStore,
    TopologyDescriptionNode,
    TopologyDescriptionSubtopology,
)
from odradek.protocol.messages.update_features_request import FeatureUpdateKey, UpdateFeaturesRequest
from tests.conformance.differential.conversation import Place, Talk
from tests.conformance.streams_scene import (
    ALL,
    SETTINGS,
    SHUTDOWN,
    STALE,
    Scene,
    revoke_tasks,
    subtopology,
    talk_to,
    topology,
    with_two_members,
)
from tests.conformance.test_streams_group_offsets import commit, fetch, group_type
from tests.conformance.test_streams_group_records import METADATA, TARGET, TOPOLOGY, Log
from tests.support.broker_process import Broker, BrokerProcess, KafkaProcess
from tests.support.oracle import needs_kafka

pytestmark = needs_kafka

PLUGIN = "org.apache.kafka.server.streams.InMemoryTopologyDescriptionPlugin"
NONE, INVALID = ErrorCode.NONE, ErrorCode.INVALID_REQUEST
SOURCE, PROCESSOR, SINK = 1, 2, 3
NOT_ASKED_FOR, NOT_STORED, AVAILABLE = 0, 1, 3
UNSAFE_DOWNGRADE = 3
BEGUN, NOT_DESCRIBED = -2, -1  # stored topology epochs: the description is changing; there is no description


@pytest.fixture(scope="module", params=["kafka", "odradek"])
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    data_dir = tmp_path_factory.mktemp(f"streams-alone-{request.param}") / "data"
    settings = {
        **SETTINGS,
        "group.streams.max.size": 5,
        "group.streams.topology.description.plugin.class": PLUGIN,
    }
    alone: Broker = (
        KafkaProcess(data_dir, settings, heap="-Xmx512M")
        if request.param == "kafka"
        else BrokerProcess(data_dir, settings)
    )
    with alone:
        yield alone


def scene_at(broker: Broker, group: str) -> Scene:
    return Scene(talk_to(broker), group, broker.name == "kafka")


@pytest.fixture
def scene(broker: Broker, request: pytest.FixtureRequest) -> Iterator[Scene]:
    made = scene_at(broker, request.node.name.split("[")[0][-60:])
    if not made.partitions_of("i4"):
        made.make_shared_topics()
    yield made
    made.talk.close()


def test_scenario_033_requests_before_find_coordinator_get_not_coordinator(broker: Broker) -> None:
    talk = Talk(Place(broker.bootstrap, "", ""))
    heartbeat = StreamsGroupHeartbeatRequest(
        group_id="first",
        member_id="a",
        rebalance_timeout_ms=1000,
        topology=topology(subtopology()),
        active_tasks=[],
        standby_tasks=[],
        warmup_tasks=[],
    )
    assert ErrorCode(talk.quietly(heartbeat, 1).error_code) is ErrorCode.NOT_COORDINATOR
    (described,) = talk.quietly(StreamsGroupDescribeRequest(group_ids=["first"]), 1).groups
    assert ErrorCode(described.error_code) is ErrorCode.NOT_COORDINATOR
    talk.close()


def test_scenario_032_nobody_can_join_a_full_group(scene: Scene) -> None:
    members = [scene.member(f"m{number}") for number in range(4)]
    static = scene.member("s1", instance_id="s")
    for each in (*members, static):
        assert each.join().code is NONE
    full = (ErrorCode.GROUP_MAX_SIZE_REACHED, "The streams group has reached its maximum capacity of 5 members.")
    assert scene.member("m5").join().refused == full
    assert scene.member("m5").join(instance_id="other").refused == full
    assert members[0].join().code is NONE
    static.leave(-2, instance_id="s")
    assert scene.member("s2", instance_id="s").join().code is NONE


def described(scene: Scene, *, asks: bool = True) -> tuple[int, TopologyDescription | None]:
    request = StreamsGroupDescribeRequest(group_ids=[scene.group], include_topology_description=asks)
    (group,) = scene.talk.quietly(request, 1).groups
    assert group.error_code == 0, group
    return group.topology_description_status, group.topology_description


def push(
    scene: Scene, description: TopologyDescription, *, epoch: int = 0, member: str = "a", group: str | None = None
) -> tuple[ErrorCode, str | None]:
    request = StreamsGroupTopologyDescriptionUpdateRequest(
        group_id=scene.group if group is None else group,
        member_id=member,
        topology_epoch=epoch,
        topology_description=description,
    )
    answer = scene.talk.quietly(request, 0)
    return ErrorCode(answer.error_code), answer.error_message


def node(name: str, kind: int, **fields: object) -> TopologyDescriptionNode:
    made = TopologyDescriptionNode(name=name, node_type=kind)
    for key, value in fields.items():
        setattr(made, key, value)
    return made


DESCRIPTION = TopologyDescription(
    subtopologies=[
        TopologyDescriptionSubtopology(
            subtopology_id="0",
            nodes=[
                node("reads", SOURCE, source_topics=["i4"], successors=["counts"]),
                node("counts", PROCESSOR, stores=["store"], successors=["writes"]),
                node("writes", SINK, sink_topic="out"),
            ],
        )
    ],
    global_stores=[
        TopologyDescriptionGlobalStore(source=node("g", SOURCE, source_topics=["i3"]), processor=node("p", PROCESSOR))
    ],
)


def test_scenarios_110_and_111_and_112_and_113_and_114_a_topology_description_is_requested_stored_and_removed(
    scene: Scene,
) -> None:
    a = scene.member("a")
    assert a.join().response.topology_description_required
    assert not a.beat().response.topology_description_required
    assert described(scene) == (NOT_STORED, None)
    assert push(scene, DESCRIPTION, member="", group="") == (INVALID, "MemberId can't be empty.")
    assert push(scene, DESCRIPTION, group="") == (INVALID, "GroupId can't be empty.")
    assert push(scene, DESCRIPTION, group="nowhere")[0] is ErrorCode.GROUP_ID_NOT_FOUND
    assert push(scene, DESCRIPTION, member="q")[0] is ErrorCode.UNKNOWN_MEMBER_ID
    assert push(scene, DESCRIPTION, epoch=5) == (
        INVALID,
        "Topology epoch 5 does not match the group's current topology epoch 0.",
    )
    odd = TopologyDescription(
        subtopologies=[TopologyDescriptionSubtopology(subtopology_id="0", nodes=[node("n", 9)])], global_stores=[]
    )
    assert push(scene, odd) == (INVALID, "Unknown topology node type: 9")
    two_sinks = TopologyDescriptionGlobalStore(source=node("a", SINK), processor=node("b", SINK))
    assert push(scene, TopologyDescription(subtopologies=[], global_stores=[two_sinks])) == (
        INVALID,
        "Global store must be composed of a source and a processor node.",
    )
    log = Log(scene)
    assert push(scene, DESCRIPTION) == (NONE, None)
    assert described_epochs(log.records()) == [BEGUN, 0]
    status, stored = described(scene)
    assert (status, repr(stored)) == (AVAILABLE, repr(DESCRIPTION))
    assert described(scene, asks=False) == (NOT_ASKED_FOR, None)
    assert scene.state == ("Stable", 2, 2)
    assert not a.beat().response.topology_description_required
    a.leave()
    log.records()
    assert scene.delete() is NONE
    removed = log.records()
    assert described_epochs(removed) == [BEGUN, NOT_DESCRIBED]
    assert [each.key.API_KEY for each in removed if each.value is None] == [TARGET, METADATA, TOPOLOGY]
    assert a.join().epoch_and_tasks == (2, ALL)
    assert described(scene) == (NOT_STORED, None)


def described_epochs(records: list[CoordinatorRecord]) -> list[int]:
    """Returns the `stored_description_topology_epoch` of each record with the group's metadata."""
    values = [each.value for each in records if isinstance(each.value, StreamsGroupMetadataValue)]
    return [value.stored_description_topology_epoch for value in values]


def test_a_stale_member_is_not_asked_for_a_description(scene: Scene) -> None:
    scene.topology = topology(subtopology(), epoch=3)
    a, c = scene.member("a"), scene.member("c")
    a.join(version=0)
    stale = c.join(topology(subtopology(), epoch=1))
    assert stale.statuses == [STALE]
    assert not stale.response.topology_description_required
    assert a.beat().response.topology_description_required


def level(scene: Scene, of: int) -> None:
    update = FeatureUpdateKey(feature="streams.version", max_version_level=of, upgrade_type=1 if of else 2)
    answer = scene.talk.quietly(UpdateFeaturesRequest(feature_updates=[update]), 1)
    assert answer.error_code == 0, answer


def test_scenario_100_the_feature_is_switched_off_and_on(scene: Scene) -> None:
    """At streams.version 0, requests for streams groups get UNSUPPORTED_VERSION (F6 of docs/spec/kafka-4.4.md#s2)."""
    a = scene.member("a")
    a.join()
    level(scene, 0)
    a.beat_until(lambda reply: reply.code is not NONE)
    assert a.beat().code is ErrorCode.UNSUPPORTED_VERSION
    assert ErrorCode(scene.described().error_code) is ErrorCode.UNSUPPORTED_VERSION
    assert push(scene, DESCRIPTION)[0] is ErrorCode.UNSUPPORTED_VERSION
    assert group_type(scene) == ("streams", "streams", "Stable")
    assert commit(scene, "a", 2) == [NONE]
    assert fetch(scene, "a", 2) == (NONE, 7)
    assert scene.delete() is ErrorCode.NON_EMPTY_GROUP
    level(scene, 1)
    assert a.beat_until(lambda reply: reply.code is NONE).epoch_and_tasks == (2, None)


def test_scenarios_102_and_103_groups_survive_a_kill(broker: Broker, scene: Scene) -> None:
    stable = Scene(scene.talk, "stable", scene.is_kafka, topology(subtopology(changelogs=["stable-c"])))
    with_stores = stable.member("s1", instance_id="i", process_id="P")
    with_stores.join()
    with_stores.beat_for_tasks()
    with_stores.leave(-2, instance_id="i")
    a, c = with_two_members(scene)
    d = scene.member("d")
    d.join()
    a.beat()
    c.beat(shutdown_application=True)
    assert c.beat().statuses == [SHUTDOWN]
    before = scene.state
    broker.kill9()
    broker.start()
    scene.talk.close()
    scene.talk = stable.talk = talk_to(broker)
    while scene.described().error_code:
        pass  # The coordinator is still loading.
    assert scene.state == before
    goes_on = c.beat()
    assert (goes_on.code, goes_on.statuses) == (NONE, [])
    assert goes_on.response.endpoint_information_epoch == 0
    found = stable.described().topology
    assert found is not None
    assert found.subtopologies is not None
    assert [each.partitions for each in found.subtopologies[0].state_changelog_topics] == [0]
    replaced = stable.member("s2", instance_id="i", process_id="P").join()
    assert replaced.active == ALL
    assert stable.state[0] == "Stable"


def test_a_member_that_was_to_give_up_tasks_does_so_after_a_kill(broker: Broker, scene: Scene) -> None:
    a, c = scene.member("a"), scene.member("c")
    a.join()
    revoke_tasks(scene, a, c)
    broker.kill9()
    broker.start()
    scene.talk.close()
    scene.talk = talk_to(broker)
    while scene.described().error_code:
        pass  # The coordinator is still loading.
    assert a.beat({"0": [0, 1]}).epoch_and_tasks == (3, None)
    assert c.beat().epoch_and_tasks == (3, {"0": [2, 3]})
