"""Tests that responses list the endpoints where an application's instances serve their state:
docs/spec/streams-groups.md#s6, #s13-5."""

from odradek.protocol.messages.streams_group_heartbeat_request import Endpoint
from tests.conformance.streams_scene import Scene, Tasks, subtopology, topology
from tests.support.oracle import needs_kafka

pytestmark = needs_kafka

AT_A, AT_C = Endpoint(host="a", port=1), Endpoint(host="c", port=65535)


def test_scenarios_073_and_074_and_075_and_076_and_077_and_078_and_079_members_get_endpoints(scene: Scene) -> None:
    scene.configure(num_standby_replicas=1)
    scene.topology = topology(subtopology("0", ["i4", "i3"], changelogs=[scene.named("c")]))
    a, c = scene.member("a", user_endpoint=AT_A), scene.member("c", user_endpoint=AT_C)
    first = a.join()
    assert (first.response.endpoint_information_epoch, first.endpoints) == (0, [("a:1", {}, {})])
    given = a.beat_for_tasks(endpoint_information_epoch=0)
    assert given.response.endpoint_information_epoch == 1
    assert given.endpoints == [("a:1", {"i4": [0, 1, 2, 3], "i3": [0, 1, 2]}, {})]
    second = c.join()
    assert second.response.endpoint_information_epoch == 2
    at_a: tuple[str, Tasks, Tasks] = ("a:1", {"i4": [0, 1, 2, 3], "i3": [0, 1, 2]}, {})
    assert second.endpoints == [at_a, ("c:65535", {}, {"i4": [0, 1], "i3": [0, 1]})]
    reply = a.beat(endpoint_information_epoch=1)
    assert (reply.active, reply.response.endpoint_information_epoch) == ({"0": [0, 1]}, 3)
    assert reply.endpoints is not None
    assert reply.endpoints[-1][0] == "a:1"
    gave_up = a.beat({"0": [0, 1]}, {"0": [2, 3]}, endpoint_information_epoch=3)
    assert gave_up.endpoints is None
    got = c.beat(endpoint_information_epoch=2)
    assert (got.active, got.response.endpoint_information_epoch) == ({"0": [2, 3]}, 4)
    assert got.endpoints == [
        ("a:1", {"i4": [0, 1], "i3": [0, 1]}, {"i4": [2, 3], "i3": [2]}),
        ("c:65535", {"i4": [2, 3], "i3": [2]}, {"i4": [0, 1], "i3": [0, 1]}),
    ]
    assert c.beat(endpoint_information_epoch=4).endpoints is None
    assert c.beat(endpoint_information_epoch=99).endpoints == got.endpoints
    d = scene.member("d")
    without = d.join()
    assert without.response.endpoint_information_epoch == 4
    assert without.endpoints is not None
    assert len(without.endpoints) == 2
    moved = c.beat(endpoint_information_epoch=4, user_endpoint=Endpoint(host="c", port=2))
    assert moved.response.endpoint_information_epoch >= 5
    assert moved.endpoints is not None
    assert moved.endpoints[-1][0] == "c:2"


def test_scenario_133_two_threads_of_a_process_are_listed_both(scene: Scene) -> None:
    a = scene.member("a", process_id="P", user_endpoint=AT_A)
    c = scene.member("c", process_id="P", user_endpoint=AT_A)
    a.join()
    c.join()
    listed = c.beat(endpoint_information_epoch=99).endpoints
    assert listed is not None
    assert [address for address, _, _ in listed] == ["a:1", "a:1"]


def test_scenario_080_a_group_without_endpoints_returns_none(scene: Scene) -> None:
    a = scene.member("a")
    a.join()
    assert a.beat(endpoint_information_epoch=-1).endpoints == []
    reply = a.beat(endpoint_information_epoch=0)
    assert (reply.endpoints, reply.response.endpoint_information_epoch) == (None, 0)


def test_a_member_that_rejoins_without_an_endpoint_has_none(scene: Scene) -> None:
    a = scene.member("a")
    a.join(user_endpoint=AT_A)
    a.beat()
    assert a.described().user_endpoint is not None
    a.join()
    assert a.described().user_endpoint is None
