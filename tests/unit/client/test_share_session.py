"""Tests a share session's epochs and partitions after each response (docs/spec/share-groups.md#s1-10, #s6-1)."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from odradek.client.sharing.share_session import LAST_EPOCH, NamedPartitions, ShareSession
from odradek.protocol.errors import ErrorCode
from odradek.protocol.topic_partition import TopicIdPartition

A, B, C = (TopicIdPartition(bytes(15) + b"\1", index) for index in range(3))


def named(added: Iterable[TopicIdPartition] = (), forgotten: Iterable[TopicIdPartition] = ()) -> NamedPartitions:
    return NamedPartitions(frozenset(added), frozenset(forgotten))


def opened(*partitions: TopicIdPartition) -> ShareSession:
    session = ShareSession()
    session.on_fetch_response(frozenset(partitions), ErrorCode.NONE)
    return session


def test_a_session_begins_at_epoch_0_with_every_partition() -> None:
    session = ShareSession()
    assert (session.epoch, session.is_open) == (0, False)
    assert session.partitions_to_name(frozenset({A, B}), ()) == named({A, B})


def test_fetches_and_acknowledgements_count_the_same_epoch() -> None:
    session = opened(A)
    assert session.epoch == 1
    session.on_acknowledge_response([A], ErrorCode.NONE)
    session.on_fetch_response(frozenset({A}), ErrorCode.NONE)
    assert session.epoch == 3


def test_after_the_last_epoch_comes_the_first_and_never_0() -> None:
    session = ShareSession(LAST_EPOCH)
    session.on_acknowledge_response((), ErrorCode.NONE)
    assert session.epoch == 1


def test_only_changes_are_named_in_an_open_session() -> None:
    assert opened(A, B).partitions_to_name(frozenset({A, B}), ()) == named()
    assert opened(A, B).partitions_to_name(frozenset({B, C}), ()) == named({C}, {A})


def test_a_partition_named_for_its_acknowledgements_alone_is_forgotten_by_the_same_fetch() -> None:
    assert opened(A).partitions_to_name(frozenset({A}), [B]).forgotten == {B}


def test_a_partition_named_in_an_acknowledge_request_stays_until_the_next_fetch_forgets_it() -> None:
    session = opened(A)
    session.on_acknowledge_response([B], ErrorCode.NONE)
    assert session.partitions_to_name(frozenset({A}), ()) == named(set(), {B})


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.SHARE_SESSION_NOT_FOUND,
        ErrorCode.INVALID_SHARE_SESSION_EPOCH,
        ErrorCode.SHARE_SESSION_LIMIT_REACHED,
    ],
)
def test_a_session_that_the_broker_does_not_know_is_opened_anew_with_everything(code: ErrorCode) -> None:
    for answer in ("on_fetch_response", "on_acknowledge_response"):
        session = opened(A)
        getattr(session, answer)(frozenset({A}), code)
        assert not session.is_open
        assert session.partitions_to_name(frozenset({A}), ()).added == {A}


def test_another_error_has_consumed_the_epoch() -> None:
    session = opened(A)
    session.on_fetch_response(frozenset({A}), ErrorCode.UNKNOWN_SERVER_ERROR)
    assert session.epoch == 2


def test_without_an_answer_the_session_is_opened_anew() -> None:
    session = opened(A)
    session.reset()
    assert session == ShareSession()
