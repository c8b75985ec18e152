"""Arranges a timeline's events in a diagram, with lanes for the coordinator and the partitions, and columns in the
order of events. This module has no side effects.

Time runs from left to right, but not to scale, because a transaction can last a millisecond or a week. Successive
events of the same kind in different lanes share a column. The browser draws the diagram (assets/picture.js).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from odradek.broker.http.page.partition_timeline import COMPLETE, DECIDED, BatchRun, PastTransaction, count

if TYPE_CHECKING:
    from odradek.broker.http.page.history import TxnStep
    from odradek.broker.http.page.served import JsonValue, View
    from odradek.protocol.topic_partition import TopicPartition

COORDINATOR = 0  # number of the coordinator's lane
MAX_LANES = 8  # maximum number of lanes for partitions
MAX_COLUMNS = 24  # maximum number of columns; older events appear only in the list below the diagram
AT_PARTITIONS = frozenset({"marker", "received", "applied", "replying"})
PARALLEL = frozenset({"batch", "marker", "hold"})


@dataclass(frozen=True, slots=True)
class DrawnEvent:
    """An event in the diagram.

    kind   step, batch, marker, hold or ahead
    tone   name of the color
    at_ms  None if the event is waiting at a hold
    is_broker_time
           whether `at_ms` is from the broker's clock, not a producer's
    """

    lane: int
    kind: str
    tone: str
    label: Sequence[str]
    at_ms: int | None
    offset: int | None = None
    is_broker_time: bool = True


@dataclass(frozen=True, slots=True)
class Lane:
    """A lane of the diagram.

    last_stable, end  last stable offset and high watermark of a partition; None for the coordinator
    """

    name: str
    last_stable: int | None = None
    end: int | None = None


@dataclass(frozen=True, slots=True)
class Hold:
    """A hold, set through the control interface, at which an event of this timeline is waiting.

    who  the waiting request or step, in the format that `GET /control/v1/holds` returns
    """

    name: str
    who: Mapping[str, object]

    @property
    def partitions(self) -> Sequence[str]:
        found = self.who.get("partitions")
        return [str(each) for each in found] if isinstance(found, list) else ()

    @property
    def sentence(self) -> str:
        """A sentence that describes the waiting request or step and explains how to let it continue."""
        where = ", ".join(self.partitions)
        within = f" in {where}" if where else ""
        match self.who.get("at"):
            case "prepared":
                held = "The decision is made; the first marker waits"
            case "marker":
                held = f"The marker{within} waits"
            case "completed":
                held = "All markers are written; the message to the coordinator waits"
            case "received":
                held = f"{self.who.get('api')}{within} waits before it is handled"
            case "applied" | "replying":
                held = f"{self.who.get('api')}{within} has been handled; its answer waits"
            case at:
                held = f"A step of the broker ({at}){within} waits"
        return f"{held} at the hold {self.name} until you release it."


def holds_of(
    views: Iterable[View],
    *,
    transactional_id: str | None = None,
    producer_id: int | None = None,
    partition: str | None = None,
) -> list[Hold]:
    """Returns the holds of one transaction or of one partition.

    views  all holds, in the format that `GET /control/v1/holds` returns
    """
    found = []
    for each in views:
        who = each["who"]
        for one in who if isinstance(who, list) else ():
            names = (one.get("transactional_id"), one.get("producer_id"))
            if partition is not None:
                is_of_it = partition in one.get("partitions", ())
            else:
                is_of_it = names[0] == transactional_id if names[0] is not None else names[1] == producer_id
            if is_of_it and (partition is not None or names != (None, None)):
                found.append(Hold(str(each["name"]), one))
    return found


def picture(
    lanes: Sequence[Lane], events: Sequence[DrawnEvent], holds: Sequence[Hold], until: str | None = None
) -> View:
    """Returns the diagram's lanes, columns and events as JSON.

    events  the events in order; events waiting at `holds` are added after them
    until   completes the sentence "read_committed consumers wait …"; None if the view shows waiting consumers elsewhere
    """
    drawn = [*events, *(held for each in holds for held in held_events(each, lanes))]
    placed = in_columns(drawn)
    first = max(0, placed[-1][0] + 1 - MAX_COLUMNS) if placed else 0
    shown = [(column - first, event) for column, event in placed if column >= first]
    columns = shown[-1][0] + 1 if shown else 0
    is_broker_time = any(event.is_broker_time and event.at_ms is not None for _, event in shown)
    return {
        "left_out": first,
        "times": times_of(shown, columns, is_broker_time=is_broker_time),
        "clock": "broker" if is_broker_time else "producers",
        "lanes": [shown_lane(number, lane, shown, columns) for number, lane in enumerate(lanes)],
        "events": [
            {
                "lane": event.lane,
                "column": column,
                "kind": event.kind,
                "tone": event.tone,
                "label": list(event.label),
            }
            for column, event in shown
        ],
        "words": [*(each.sentence for each in holds), *waiting_words(lanes, until)],
        "holds": sorted({each.name for each in holds}),
    }


def times_of(shown: Iterable[tuple[int, DrawnEvent]], columns: int, *, is_broker_time: bool) -> list[JsonValue]:
    """Returns the time of each column, or None for a column without a time. All times are from one kind of clock, and
    never decrease from one column to the next.

    is_broker_time  True to use times from the broker's clock; False to use times from the producers' clocks
    """
    times: list[JsonValue] = [None] * columns
    latest = -1
    for column, event in shown:
        if event.at_ms is not None and event.is_broker_time is is_broker_time and event.at_ms >= latest:
            times[column] = latest = event.at_ms
    return times


def waiting_words(lanes: Iterable[Lane], until: str | None) -> list[str]:
    found = []
    for lane in lanes:
        waiting = 0 if lane.last_stable is None or lane.end is None else lane.end - lane.last_stable
        if waiting and until is not None:
            before = f"at offset {lane.last_stable:,}, before {count(waiting, 'record')}"
            found.append(f"Readers of committed data wait in {lane.name} {before}, {until}.")
    return found


def in_columns(events: Iterable[DrawnEvent]) -> list[tuple[int, DrawnEvent]]:
    placed: list[tuple[int, DrawnEvent]] = []
    column, used_lanes, kind = -1, set[int](), ""
    for event in events:
        if event.kind != kind or event.kind not in PARALLEL or event.lane in used_lanes:
            column, used_lanes, kind = column + 1, set(), event.kind
        used_lanes.add(event.lane)
        placed.append((column, event))
    return placed


def shown_lane(number: int, lane: Lane, shown: Sequence[tuple[int, DrawnEvent]], columns: int) -> JsonValue:
    """Returns a lane as JSON. `stable_column` is the first column at or after the last stable offset."""
    if lane.last_stable is None:
        return {"name": lane.name, "last_stable": None, "end": None, "stable_column": None}
    column = next(
        (
            column
            for column, event in shown
            if event.lane == number
            and (event.kind == "hold" or (event.offset is not None and event.offset >= lane.last_stable))
        ),
        columns,
    )
    return {"name": lane.name, "last_stable": lane.last_stable, "end": lane.end, "stable_column": column}


def held_events(hold: Hold, lanes: Sequence[Lane]) -> list[DrawnEvent]:
    """Returns one event for each lane in which a request or step is waiting at the hold."""
    at = [number for number, lane in enumerate(lanes) if number != COORDINATOR and lane.name in hold.partitions]
    if hold.who.get("at") not in AT_PARTITIONS or not at:
        at = [COORDINATOR]
    return [DrawnEvent(lane, "hold", "wait", ("held:", hold.name), None) for lane in at]


def step_event(what: str, kind: str, at_ms: int, name: str | None = None, *, is_ahead: bool = False) -> DrawnEvent:
    """Returns the event for one of the coordinator's steps.

    what  the step's description in the list below the diagram
    """
    words = what.partition(":")[0].partition(";")[0]
    label = (words,) if name is None else (words, name)
    return DrawnEvent(COORDINATOR, "ahead" if is_ahead else "step", kind, label, at_ms)


def run_event(run: BatchRun, lane: int) -> DrawnEvent:
    if run.is_commit is not None:
        word = "commit" if run.is_commit else "abort"
        return DrawnEvent(lane, "marker", word, (word, f"at {run.first_offset:,}"), run.at_ms, run.first_offset)
    offsets = f"{run.first_offset:,}"
    if run.last_offset > run.first_offset:
        offsets += f" – {run.last_offset:,}"
    tone = "open" if run.is_transactional else "plain"
    words = (offsets, count(run.records, "record"))
    return DrawnEvent(lane, "batch", tone, words, run.at_ms, run.first_offset, run.is_broker_time)


def timeline_events(timeline: Sequence[JsonValue], runs: Sequence[BatchRun]) -> list[DrawnEvent]:
    """Returns the events to draw for a partition's timeline, in the same order.

    runs  the timeline's runs, in order
    """
    left = iter(runs)
    found = []
    for each in timeline:
        assert isinstance(each, Mapping)
        if each["by"] == "log":
            found.append(run_event(next(left), COORDINATOR + 1))
        else:
            at_ms, what, kind = each["at_ms"], str(each["what"]), str(each["kind"])
            assert isinstance(at_ms, int)
            name = None if each["id"] is None else str(each["id"])
            found.append(step_event(what, kind, at_ms, name, is_ahead=kind == "ahead"))
    return found


def last_transaction(transactions: Sequence[PastTransaction]) -> PastTransaction | None:
    """Returns the last transaction that has at least one partition, or None."""
    return next((each for each in reversed(transactions) if each.partitions), None)


def transaction_events(
    transaction: PastTransaction, runs: Mapping[TopicPartition, Sequence[BatchRun]]
) -> list[DrawnEvent]:
    """Returns a transaction's events in order.

    Batch times come from the producers' clocks, which may be wrong. Batches are therefore always placed between the
    step that added their partition and the decision.

    runs  the transaction's batches and marker by partition, in the order of the lanes
    """
    begun_ms = transaction.steps[0].at_ms
    decided_ms = transaction.decided_ms
    found: list[tuple[tuple[int, int], DrawnEvent]] = []
    last_ms = begun_ms
    for lane, (place, of) in enumerate(runs.items(), COORDINATOR + 1):
        added_ms = next(
            (each.at_ms for each in transaction.steps if each.txn is not None and place in each.txn.partitions),
            begun_ms,
        )
        for run in of:
            if run.is_commit is None:
                at_ms = max(run.at_ms, added_ms)
                at_ms = at_ms if decided_ms is None else min(at_ms, decided_ms)
                found.append(((at_ms, 1), run_event(run, lane)))
            else:
                at_ms = max(run.at_ms, decided_ms or begun_ms)
                found.append(((at_ms, 3), run_event(run, lane)))
            last_ms = max(last_ms, at_ms)
    for step in transaction.steps:
        found.append(
            (phase(step, last_ms), step_event(str(step.as_view()["what"]), str(step.as_view()["kind"]), step.at_ms))
        )
    return [event for _, event in sorted(found, key=lambda each: (*each[0], each[1].lane))]


def phase(step: TxnStep, last_ms: int) -> tuple[int, int]:
    """Returns the sort key of a step: its time, and a rank among simultaneous events. Batches have rank 1 and markers
    have rank 3."""
    state = None if step.txn is None else step.txn.state
    if state in COMPLETE or state is None:
        return max(step.at_ms, last_ms), 4
    return step.at_ms, 2 if state in DECIDED else 0


def runs_of_last(
    runs: Sequence[BatchRun], producer_id: int, *, is_open: bool, decided_ms: int | None
) -> list[BatchRun]:
    """Returns the runs of a producer's last transaction in one partition.

    is_open     whether the transaction has records in this partition, but no marker yet
    decided_ms  time of the decision, used to recognise the marker; None if the transaction is not decided
    """
    parts: list[list[BatchRun]] = [[]]
    for run in runs:
        if run.producer_id == producer_id and run.is_transactional:
            parts[-1].append(run)
            if run.is_commit is not None:
                parts.append([])
    if is_open or len(parts) == 1:
        return parts[-1]
    closed = parts[-2]
    return closed if decided_ms is not None and closed[-1].at_ms >= decided_ms else []
