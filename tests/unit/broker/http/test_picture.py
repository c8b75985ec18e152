"""Tests that a timeline's picture has the right lanes and columns, and that no part is cut off at any width."""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.http.page.document import ASSETS
from odradek.broker.http.page.history import TxnStep
from odradek.broker.http.page.partition_timeline import BatchRun, PastTransaction
from odradek.broker.http.page.picture import (
    MAX_COLUMNS,
    DrawnEvent,
    Hold,
    Lane,
    holds_of,
    picture,
    runs_of_last,
    transaction_events,
)
from odradek.broker.transactions.entry import Txn
from odradek.broker.transactions.tables import TxnState
from tests.unit.broker.http.test_partition_timeline import PAY, batch, marker

ONE, TWO = ("orders", 0), ("orders", 1)
LANES = (Lane("coordinator"), Lane("orders-0", 2, 2), Lane("orders-1", 0, 1))
AT_MARKER = {"at": "marker", "producer_id": PAY, "partitions": ["orders-1"]}
HELD = Hold("second", AT_MARKER)
DENO = Path(sys.executable).with_name("deno")


def step(at_ms: int, state: TxnState, *places: tuple[str, int]) -> TxnStep:
    return TxnStep(at_ms, at_ms, None, Txn("pay", PAY, 0, 60_000, state, frozenset(places)))


def caught() -> Mapping[str, Any]:
    """Returns the picture of a commit between its two markers. The producers' clocks are ahead for some batches and
    behind for others."""
    steps = [
        step(90, TxnState.EMPTY),
        step(100, TxnState.ONGOING, ONE, TWO),
        step(110, TxnState.PREPARE_COMMIT, ONE, TWO),
    ]
    runs = {ONE: [batch(0, 0, at_ms=9_999_999), marker(1, at_ms=111)], TWO: [batch(0, 0, at_ms=95)]}
    events = transaction_events(PastTransaction(steps), runs)
    return picture(LANES, events, [HELD], "until its marker is written there")


def columns(shown: Mapping[str, Any]) -> list[tuple[int, str, int]]:
    return [(each["column"], each["kind"], each["lane"]) for each in shown["events"]]


def test_a_commit_that_is_held_between_its_markers_is_drawn_in_columns() -> None:
    assert columns(caught()) == [
        (0, "step", 0),
        (1, "step", 0),
        (2, "batch", 2),
        (2, "batch", 1),
        (3, "step", 0),
        (4, "marker", 1),
        (5, "hold", 2),
    ]


def test_times_of_the_picture_are_those_of_the_broker_and_ascend() -> None:
    assert (caught()["clock"], caught()["times"]) == ("broker", [90, 100, None, 110, 111, None])
    stepped_back = [DrawnEvent(0, "step", "open", ("begun",), at_ms) for at_ms in (5, 3, 6)]
    assert picture(LANES, stepped_back, [])["times"] == [5, None, 6]


def test_without_a_time_of_the_broker_those_of_producers_are_shown_if_they_rise() -> None:
    events = [DrawnEvent(1, "batch", "plain", ("0",), at_ms, is_broker_time=False) for at_ms in (7, 5, 9)]
    shown = picture(LANES, events, [])
    assert (shown["clock"], shown["times"]) == ("producers", [7, None, 9])


def test_the_last_stable_offset_stands_before_what_readers_wait_for() -> None:
    assert [each["stable_column"] for each in caught()["lanes"]] == [None, 6, 2]


def test_the_picture_describes_how_to_release_the_hold() -> None:
    assert caught()["words"] == [
        "The marker in orders-1 waits at the hold second until you release it.",
        "Readers of committed data wait in orders-1 at offset 0, before 1 record, until its marker is written there.",
    ]


@pytest.mark.parametrize(
    ("who", "words"),
    [
        ({"at": "prepared"}, "The decision is made; the first marker waits at the hold h until you release it."),
        (
            {"at": "received", "api": "Produce", "partitions": ["t-0"]},
            "Produce in t-0 waits before it is handled at the hold h until you release it.",
        ),
        (
            {"at": "applied", "api": "EndTxn"},
            "EndTxn has been handled; its answer waits at the hold h until you release it.",
        ),
    ],
)
def test_a_hold_is_described_in_a_sentence(who: dict[str, object], words: str) -> None:
    assert Hold("h", who).sentence == words


def test_holds_of_others_are_left_out() -> None:
    rules: list[dict[str, Any]] = [
        {"name": "second", "who": [AT_MARKER]},
        {"name": "request", "who": [{"at": "received", "transactional_id": "pay", "partitions": []}]},
        {
            "name": "other",
            "who": [{"at": "received", "transactional_id": "other", "producer_id": PAY}, {"at": "loading"}],
        },
    ]
    assert [each.name for each in holds_of(rules, transactional_id="pay", producer_id=PAY)] == ["second", "request"]
    assert [each.name for each in holds_of(rules, partition="orders-1")] == ["second"]


@pytest.mark.parametrize(
    ("runs", "is_open", "decided_ms", "offsets"),
    [
        ([batch(0, 0), marker(1, at_ms=50), batch(2, 3)], True, None, [2]),
        ([batch(0, 0), marker(1, at_ms=50), batch(2, 3), marker(4, at_ms=90)], False, 90, [2, 4]),
        ([batch(0, 0), marker(1, at_ms=50)], False, 90, []),  # this is the previous transaction's marker
        ([batch(0, 0), marker(1, at_ms=50)], False, None, []),
        ([batch(0, 0, producer_id=8)], False, None, []),
    ],
)
def test_the_runs_of_the_last_transaction_are_found(
    runs: list[BatchRun], is_open: bool, decided_ms: int | None, offsets: list[int]
) -> None:
    found = runs_of_last(runs, PAY, is_open=is_open, decided_ms=decided_ms)
    assert [each.first_offset for each in found] == offsets


def test_only_the_latest_columns_are_drawn() -> None:
    events = [DrawnEvent(0, "step", "open", ("begun",), number) for number in range(100)]
    shown = picture(LANES, events, [])
    assert (shown["left_out"], shown["times"]) == (100 - MAX_COLUMNS, list(range(100 - MAX_COLUMNS, 100)))
    assert picture(LANES, [], [])["times"] == []


LONG = "a" * 249
LETTER = 6.9  # maximum width of a letter in pixels
LAYOUT = """
const { layout } = await import("%s");
const told = JSON.parse(await new Response(Deno.stdin.readable).text());
console.log(JSON.stringify(told.widths.map((width) => layout(told.picture, width))));
"""


def drawn(shown: Mapping[str, Any], *widths: int) -> list[Any]:
    """Returns the shapes that a browser draws, for each width."""
    code = LAYOUT % (ASSETS / "layout.js").as_uri()
    text = json.dumps({"picture": shown, "widths": widths})
    run = subprocess.run(
        [DENO, "eval", "--quiet", code],
        input=text,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return list(json.loads(run.stdout))


def test_nothing_is_cut_off_at_any_width() -> None:
    long: Mapping[str, Any] = picture(
        (Lane("coordinator"), Lane(f"{LONG}-0", 2**40, 2**40 + 1)),
        [DrawnEvent(number % 2, "batch", "open", (f"{2**40:,} – {2**40 + 9:,}", LONG), number) for number in range(20)],
        [],
    )
    for shown in (caught(), long):
        for width, found in zip((93, 328, 700, 1900), drawn(shown, 93, 328, 700, 1900), strict=True):
            assert found["width"] == width
            kinds = [name for name, *_ in found["shapes"]]
            assert kinds.count("rect") + kinds.count("polygon") + kinds.count("circle") >= len(list(shown["events"]))
            for name, at, *text in found["shapes"]:
                right = (
                    at["x"] + 6.9 * len(text[0])
                    if name == "text"
                    else at.get("x2", at.get("x", 0) + at.get("width", 0))
                )
                assert right <= width + 1, (width, name, at, text)
                assert at.get("y", at.get("y2", 0)) <= found["height"]


def test_the_same_timeline_gives_the_same_shapes() -> None:
    assert drawn(caught(), 400) == drawn(caught(), 400)
