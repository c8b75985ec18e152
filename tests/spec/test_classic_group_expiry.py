"""Tests that unused offsets expire after `offsets.retention.minutes`, and that an empty group expires together with its
last offset."""

import pytest

from odradek.protocol.errors import ErrorCode
from tests.support.group_scene import GROUP, Scene, subscription


def forgotten_after(scene: Scene, ms: int) -> bool:
    scene.now_ms += ms
    scene.expire()
    return scene.fetch_all() == {}


def test_an_offset_of_a_group_that_never_had_members_expires_after_its_commit() -> None:
    scene = Scene()
    retention_ms = scene.config.offsets_retention_ms
    scene.commit(1)
    assert not forgotten_after(scene, retention_ms - 1)
    scene.commit(2, partition=1)
    scene.now_ms += 1
    scene.expire()
    assert scene.fetch_all() == {("t", 1): 2}
    assert scene.groups() == {GROUP: "Empty"}


def test_a_group_goes_with_its_last_offset() -> None:
    scene = Scene()
    scene.commit(1)
    assert forgotten_after(scene, scene.config.offsets_retention_ms)
    assert scene.groups() == {}
    scene.restart()
    assert scene.groups() == {}


def test_offsets_of_an_emptied_group_expire_counted_from_when_it_became_empty() -> None:
    scene = Scene()
    (member,) = scene.come("a", session_timeout_ms=1_800_000)
    scene.commit(1, member_id=member, generation=1)
    scene.now_ms += 1_000_000
    scene.leave(member)
    assert not forgotten_after(scene, scene.config.offsets_retention_ms - 1)
    assert forgotten_after(scene, 1)


def test_the_time_at_which_a_group_became_empty_survives_a_restart() -> None:
    scene = Scene()
    (member,) = scene.come("a")
    scene.commit(1, member_id=member, generation=1)
    scene.now_ms += 1_000
    scene.leave(member)
    scene.now_ms += 5_000
    scene.restart()
    assert not forgotten_after(scene, scene.config.offsets_retention_ms - 5_001)
    assert forgotten_after(scene, 1)


def test_a_stable_consumer_group_keeps_only_offsets_of_subscribed_topics() -> None:
    scene = Scene()
    (member,) = scene.come("a", protocols={"range": subscription("t")})
    scene.commit(1, member_id=member, generation=1)
    scene.commit(2, member_id=member, generation=1, topic="former")
    scene.now_ms += scene.config.offsets_retention_ms
    scene.expire()
    assert scene.fetch_all() == {("t", 0): 1}
    assert scene.groups() == {GROUP: "Stable"}


def test_during_a_rebalance_nothing_expires() -> None:
    scene = Scene()
    (member,) = scene.come("a", protocols={"range": subscription("t")})
    scene.commit(1, member_id=member, generation=1, topic="former")
    scene.join(client="b")
    assert not forgotten_after(scene, scene.config.offsets_retention_ms)


def test_members_of_another_protocol_type_keep_all_offsets() -> None:
    scene = Scene()
    (member,) = scene.come("a", protocol_type="connect", protocols={"default": b""})
    scene.commit(1, member_id=member, generation=1)
    assert not forgotten_after(scene, scene.config.offsets_retention_ms)


def test_a_commit_may_bring_its_own_retention() -> None:
    """Checks that the broker applies the retention time in OffsetCommit requests of versions 2 to 4."""
    scene = Scene()
    scene.commit(1, retention_time_ms=5_000, version=4)
    scene.restart()
    assert not forgotten_after(scene, 4_999)
    assert forgotten_after(scene, 1)


def test_a_longer_retention_of_a_commit_counts_too() -> None:
    scene = Scene()
    scene.commit(1, retention_time_ms=2 * scene.config.offsets_retention_ms, version=4)
    assert not forgotten_after(scene, scene.config.offsets_retention_ms)


def test_an_empty_group_without_offsets_is_forgotten_when_next_looked_at() -> None:
    scene = Scene()
    scene.come("a")
    scene.advance(60_000)
    assert scene.groups() == {GROUP: "Empty"}
    scene.expire()
    assert scene.groups() == {}


def test_a_member_id_of_a_forgotten_group_is_unknown() -> None:
    scene = Scene()
    reply = scene.join(version=4)
    scene.expire()
    assert scene.groups() == {}
    assert scene.due == {}
    assert scene.join(reply.answer.member_id, version=4).code is ErrorCode.UNKNOWN_MEMBER_ID


def test_offsets_do_not_expire_while_writes_fail() -> None:
    scene = Scene()
    scene.commit(1)
    scene.now_ms += scene.config.offsets_retention_ms
    scene.writes_fail = True
    with pytest.raises(Exception, match="NOT_COORDINATOR"):
        scene.expire()
    assert scene.fetch() == 1
