"""Tests ListGroups, DescribeGroups and DeleteGroups for classic groups."""

import pytest

from odradek.protocol.errors import ErrorCode
from tests.support.group_scene import GROUP, Scene, subscription


def listed(scene: Scene, states: list[str] | None = None, types: list[str] | None = None) -> set[str]:
    return {group.group_id for group in scene.core.list_groups(states or [], types or [])}


def several_groups() -> Scene:
    scene = Scene()
    scene.come("a", group="stable")
    scene.commit(1, group="empty")
    scene.join(group="joining")
    return scene


@pytest.mark.parametrize(
    ("states", "groups"),
    [
        ([], {"stable", "empty", "joining"}),
        (["Stable"], {"stable"}),
        (["stable", " EMPTY "], {"stable", "empty"}),
        (["PreparingRebalance"], {"joining"}),
        (["NoSuchState"], set()),
    ],
)
def test_groups_are_listed_by_state(states: list[str], groups: set[str]) -> None:
    assert listed(several_groups(), states) == groups


@pytest.mark.parametrize(
    ("types", "groups"),
    [
        ([], {"stable", "empty", "joining"}),
        (["classic"], {"stable", "empty", "joining"}),
        (["Classic", "consumer"], {"stable", "empty", "joining"}),
        (["consumer"], set()),
        (["no such type"], set()),
    ],
)
def test_groups_are_listed_by_type(types: list[str], groups: set[str]) -> None:
    assert listed(several_groups(), types=types) == groups


def test_a_listed_group_shows_state_type_and_protocol() -> None:
    scene = Scene()
    scene.come("a")
    (group,) = scene.core.list_groups([], [])
    assert (group.group_state, group.group_type, group.protocol_type) == ("Stable", "classic", "consumer")


def test_a_stable_group_is_described_with_metadata_and_assignment() -> None:
    scene = Scene()
    (member,) = scene.come("a")
    described = scene.describe()
    assert (described.group_state, described.protocol_type, described.protocol_data) == ("Stable", "consumer", "range")
    (shown,) = described.members
    assert (shown.member_id, shown.client_id, shown.client_host) == (member, "a", "/127.0.0.1")
    assert (shown.member_metadata, shown.member_assignment) == (subscription("t"), member.encode())


def test_during_a_rebalance_neither_metadata_nor_protocol_are_shown() -> None:
    scene = Scene()
    scene.come("a")
    scene.join(client="b")
    described = scene.describe()
    assert (described.group_state, described.protocol_type, described.protocol_data) == (
        "PreparingRebalance",
        "consumer",
        "",
    )
    assert [member.member_metadata for member in described.members] == [b"", b""]


def test_before_version_6_a_group_that_is_not_there_is_a_dead_one() -> None:
    described = Scene().describe("nowhere", version=5)
    assert (described.group_state, described.error_code, described.error_message) == ("Dead", 0, None)


def test_from_version_6_on_it_is_said_that_the_group_is_not_there() -> None:
    described = Scene().describe("nowhere", version=6)
    assert (described.group_state, described.error_code) == ("Dead", ErrorCode.GROUP_ID_NOT_FOUND.value)
    assert described.error_message == "Group nowhere not found."


def test_a_group_without_members_is_deleted_with_its_offsets() -> None:
    scene = Scene()
    (member,) = scene.come("a")
    scene.commit(1, member_id=member, generation=1)
    scene.leave(member)
    assert scene.delete_group() is ErrorCode.NONE
    for _ in ("now", "after a restart"):
        assert scene.groups() == {}
        assert scene.fetch_all() == {}
        scene.restart()


@pytest.mark.parametrize("state", ["PreparingRebalance", "CompletingRebalance", "Stable"])
def test_a_group_with_members_is_not_deleted(state: str) -> None:
    scene = Scene()
    reply = scene.join()
    if state != "PreparingRebalance":
        scene.advance(0)
    if state == "Stable":
        scene.settle([reply.answer])
    assert scene.groups() == {GROUP: state}
    assert scene.delete_group() is ErrorCode.NON_EMPTY_GROUP


def test_a_group_that_is_not_there_cannot_be_deleted() -> None:
    assert Scene().delete_group("nowhere") is ErrorCode.GROUP_ID_NOT_FOUND


def test_a_deleted_group_begins_anew_with_its_first_generation() -> None:
    scene = Scene()
    (member,) = scene.come("a")
    scene.leave(member)
    scene.delete_group()
    reply = scene.join()
    scene.advance(0)
    assert reply.answer.generation_id == 1
