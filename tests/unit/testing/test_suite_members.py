"""Tests which partitions a driver's connections still fetch, with and without fetch sessions."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.testing.suite.members import fetched_partitions


def fetch(number: int, epoch: int, *partitions: int, forgets: tuple[int, ...] = ()) -> dict[str, Any]:
    request = {
        "sessionEpoch": epoch,
        "topics": [{"partitions": [{"partition": each} for each in partitions]}],
        "forgottenTopicsData": [{"partitions": list(forgets)}],
    }
    return {"number": number, "connection": 1, "request": request}


@pytest.mark.parametrize(
    ("requests", "found"),
    [
        ([fetch(1, 0, 0, 1), fetch(2, 1)], {0, 1}),
        ([fetch(1, 0, 0, 1), fetch(2, 1, forgets=(1,))], {0}),
        ([fetch(1, 0, 0, 1), fetch(2, 0, 0)], {0}),
        ([fetch(1, -1, 0, 1), fetch(2, -1, 0)], {0}),
        ([fetch(1, 0, 0), fetch(2, 1, 1)], {0, 1}),
        ([fetch(1, 0, 0, 1)], set()),
    ],
    ids=["kept up", "forgotten", "a full fetch", "no session", "added", "only before"],
)
def test_a_session_fetches_its_partitions_except_forgotten_ones(requests: list[Any], found: set[int]) -> None:
    assert fetched_partitions(requests, since=1) == found
