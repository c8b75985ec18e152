"""Applies fault rules to the end of a transaction: after the decision, before each marker, and after the last marker.

    decision in the log → rules at "prepared" → MarkerRound.start → rules at "marker" → MarkerWriter
                        → MarkerRound.handle_results → rules at "completed" → MarkerRound.report_completion

`MarkerRound` and `MarkerWriter` are described in `coordinators/transaction_markers.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import TYPE_CHECKING, TypeAlias

from odradek.broker.control.faults.rules import OBSERVE, Action, Occurrence, Point
from odradek.broker.runtime.clock import Scan
from odradek.broker.runtime.waiting import Deferred
from odradek.broker.transactions.core import MARKER_RETRY_MS
from odradek.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from odradek.broker.control.faults.rules import Rules
    from odradek.broker.coordinators.transaction_markers import (
        MarkerRound,
        MarkerRounds,
        MarkerWriter,
        OnWritten,
        TxnMarker,
    )
    from odradek.broker.runtime.clock import TimerHandle
    from odradek.broker.transactions.turn import PendingMarkers
    from odradek.protocol.topic_partition import PartitionCodes, TopicPartition


@cache
def faulty_round(plain: type[MarkerRound]) -> Callable[[Rules, MarkerRounds, PendingMarkers], MarkerRound]:
    """Returns a subclass of `plain` that applies rules.

    All clusters share this class. A class refers to itself, so if each cluster had its own class, deleted clusters
    would leave garbage that only the cycle collector can free.
    """

    class FaultyRound(plain):  # type: ignore[valid-type, misc]
        def __init__(self, rules: Rules, rounds: MarkerRounds, markers: PendingMarkers) -> None:
            super().__init__(rounds, markers)
            self.markers: PendingMarkers
            self._rules = rules
            self._own: frozenset[TopicPartition] = frozenset()  # markers that this round retries for the coordinator
            self._again: TimerHandle | None = None

        def start(self) -> None:
            self._pause(Point.PREPARED, super().start)

        def report_completion(self) -> None:
            self._pause(Point.COMPLETED, super().report_completion)

        def _pause(self, point: Point, resume: Callable[[], None]) -> None:
            if not self._rules.by_name:
                resume()
                return

            def unless_away() -> None:
                """Continues unless another coordinator has taken over, because the new coordinator carries out the
                decision itself."""
                if not self._rounds.shard.is_away:
                    resume()

            self._rules.pause(point, self._occurrence(), unless_away, is_repeated_at_start=True)

        def report_unfinished(self, done: frozenset[TopicPartition]) -> None:
            """Takes over retrying the missing markers if rules will refuse all of them until the rules are removed.

            This round retries as often as the coordinator would. When a test advances the clock, these attempts are
            skipped, since all of them would be refused.
            """
            super().report_unfinished(done)
            if self._again is not None:
                self._again.cancel()
                self._again = None
            missing = self.markers.partitions - self._done - self._pending
            self._own = missing if missing and self._is_refused_for_good(missing) else frozenset()
            if self._own:
                attempt = Scan(self._send_again, MARKER_RETRY_MS, self._attempt_due_ms)
                self._again = self._rules.timers.after(MARKER_RETRY_MS, attempt)

        def pending_partitions(self) -> frozenset[TopicPartition]:
            pending: frozenset[TopicPartition] = super().pending_partitions()
            return pending | self._own

        def _is_refused_for_good(self, places: Collection[TopicPartition]) -> bool:
            return all(
                self._rules.refuses_for_good(marker_occurrence(self.markers.producer_id, place)) for place in places
            )

        def _attempt_due_ms(self) -> int | None:
            return None if self._is_refused_for_good(self._own) else 0

        def _send_again(self) -> None:
            self._again = None
            if not self._rounds.shard.is_away:
                self.markers = replace(self.markers, partitions=self.markers.partitions - self._done)
                self.send()

        def _occurrence(self) -> Occurrence:
            markers = self.markers
            named = {"transactional_id": (markers.transactional_id,), "producer_id": (markers.producer_id,)}
            return Occurrence(None, field_values=named, places=tuple(markers.partitions))

    return FaultyRound


def marker_occurrence(producer_id: int, place: TopicPartition) -> Occurrence:
    return Occurrence(None, field_values={"producer_id": (producer_id,)}, places=(place,))


MarkerKey: TypeAlias = "tuple[int, int, TopicPartition]"  # the marker's producer id, epoch and partition


@dataclass(slots=True)
class HeldMarker:
    """A transaction marker held by a rule.

    hold       name of the hold
    marker     the marker from the newest coordinator, limited to this partition
    callbacks  called with the error code when the marker is written or refused
    """

    hold: str
    marker: TxnMarker
    callbacks: list[Callable[[ErrorCode], None]]


class FaultyMarkers:
    """A `MarkerWriter` that applies rules to the markers between the transaction coordinators and the logs.

    A held marker is pending. The coordinator answers the client without waiting for the marker, and is notified when
    the marker is written.
    """

    def __init__(self, plain: MarkerWriter, rules: Rules) -> None:
        self._plain = plain
        self._rules = rules
        self._held: dict[MarkerKey, HeldMarker] = {}
        # Markers that have been released but not yet written. Rules do not act on retries of these markers.
        self._released: set[MarkerKey] = set()

    def write(self, markers: Sequence[TxnMarker], then: OnWritten) -> None:
        if not self._rules.by_name and not self._held and not self._released:
            self._plain.write(markers, then)
            return
        # errors from rules; the writer's results are added to them
        outcomes: list[dict[TopicPartition, ErrorCode]] = []
        passed: list[TxnMarker] = []
        for number, marker in enumerate(markers):
            codes: dict[TopicPartition, ErrorCode] = {}
            going = []
            for place in marker.partitions:
                action = self._action(marker, place)
                if action.hold is not None:
                    self._hold_marker(
                        action.hold, marker, place, partial(_report_code, then, len(markers), number, place)
                    )
                elif action.error is not None:
                    codes[place] = action.error
                else:
                    going.append(place)
            outcomes.append(codes)
            passed.append(replace(marker, partitions=going))
        sent = [number for number, marker in enumerate(passed) if marker.partitions or not markers[number].partitions]
        if not sent:
            then(outcomes)
            return

        def written(results: Sequence[PartitionCodes]) -> None:
            for number, codes in zip(sent, results, strict=True):
                outcomes[number].update(codes)
                for place, code in codes.items():
                    if code is ErrorCode.NONE:
                        self._released.discard(_key(markers[number], place))
            then(outcomes)

        self._plain.write([passed[number] for number in sent], written)

    def _action(self, marker: TxnMarker, place: TopicPartition) -> Action:
        key = _key(marker, place)
        if key in self._held:
            return Action(hold=self._held[key].hold)
        if key in self._released:
            return OBSERVE
        return self._rules.action(Point.MARKER, marker_occurrence(marker.producer_id, place))

    def _hold_marker(
        self, hold: str, marker: TxnMarker, place: TopicPartition, callback: Callable[[ErrorCode], None]
    ) -> None:
        key, alone = _key(marker, place), replace(marker, partitions=[place])
        held = self._held.get(key)
        if held is not None:
            held.callbacks.append(callback)
            if alone.coordinator_epoch >= held.marker.coordinator_epoch:
                held.marker = alone
            return
        self._held[key] = HeldMarker(hold, alone, [callback])
        occurrence = marker_occurrence(marker.producer_id, place)
        release = partial(self._release, key)
        self._rules.holds.add_waiter(hold, key, release, Point.MARKER, occurrence, is_repeated_at_start=True)

    def _release(self, key: MarkerKey) -> Deferred[None]:
        """Writes the marker. Returns a Deferred that resolves when the partition's leader has reported the result."""
        held = self._held.pop(key)
        ended: Deferred[None] = Deferred()
        self._released.add(key)

        def written(results: Sequence[PartitionCodes]) -> None:
            (code,) = results[0].values()
            if code is ErrorCode.NONE:
                self._released.discard(key)
            for callback in held.callbacks:
                callback(code)
            ended.resolve(None)

        self._plain.write([held.marker], written)
        return ended

    def topic_deleted(self, topic: str) -> None:
        # If a topic with the same name is created later, it is a different topic, so rules act on its markers again.
        self._released = {key for key in self._released if key[2][0] != topic}
        for key, held in [(key, held) for key, held in self._held.items() if key[2][0] == topic]:
            del self._held[key]
            self._rules.holds.remove_waiter(held.hold, key)
            for callback in held.callbacks:
                callback(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def _key(marker: TxnMarker, place: TopicPartition) -> MarkerKey:
    return marker.producer_id, marker.producer_epoch, place


def _report_code(then: OnWritten, count: int, number: int, place: TopicPartition, code: ErrorCode) -> None:
    """Passes the error code of one marker for one partition to `then`. `number` is the index of the marker among the
    `count` markers of the request; the other markers get no result."""
    then([{place: code} if each == number else {} for each in range(count)])
