"""Tests the start offset of each leader epoch."""

import pytest

from odradek.storage.leader_epochs import LeaderEpochs


def epochs() -> LeaderEpochs:
    return LeaderEpochs([(2, 0), (5, 10), (7, 30)])


@pytest.mark.parametrize(
    ("epoch", "answer"), [(1, (1, 0)), (2, (2, 10)), (4, (2, 10)), (5, (5, 30)), (6, (5, 30)), (7, (7, 42)), (8, None)]
)
def test_the_end_offset_of_an_epoch_is_found(epoch: int, answer: tuple[int, int] | None) -> None:
    assert epochs().end_offset(epoch, log_end_offset=42) == answer


def test_an_empty_log_has_no_epochs() -> None:
    assert LeaderEpochs().end_offset(0, 0) is None
    assert LeaderEpochs().latest is None


@pytest.mark.parametrize(("offset", "epoch"), [(0, 2), (9, 2), (10, 5), (99, 7)])
def test_the_epoch_that_wrote_an_offset_is_found(offset: int, epoch: int) -> None:
    assert epochs().epoch_at(offset) == epoch


def test_an_epoch_that_wrote_nothing_gives_way_to_the_next() -> None:
    known = epochs()
    known.assign(8, 50)
    known.assign(9, 50)
    assert known.entries() == [(2, 0), (5, 10), (7, 30), (9, 50)]


def test_an_epoch_that_is_not_newer_changes_nothing() -> None:
    known = epochs()
    known.assign(7, 40)
    known.assign(3, 40)
    assert known.entries() == epochs().entries()
    assert not known.is_dirty


@pytest.mark.parametrize(("start", "left"), [(0, 3), (5, 3), (10, 2), (29, 2), (30, 1), (99, 1)])
def test_the_epoch_that_wrote_the_log_start_is_kept_as_starting_there(start: int, left: int) -> None:
    known = epochs()
    known.truncate_from_start(start)
    assert len(known.entries()) == left
    assert known.entries()[0] == (epochs().epoch_at(start), start)
    assert known.is_dirty == (start > 0)


@pytest.mark.parametrize(("end", "left"), [(99, 3), (31, 3), (30, 2), (10, 1), (1, 1), (0, 0)])
def test_epochs_at_or_beyond_the_end_go(end: int, left: int) -> None:
    known = epochs()
    known.truncate_from_end(end)
    assert len(known.entries()) == left
