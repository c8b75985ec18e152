"""Tests that, when a member acknowledges every second record out of thousands, the work grows linearly with the number
of records.

Other clients have to wait during this work. They once waited for 1.6 s, because each of 5,000 ranges required a search
through all ranges.
"""

import random
from collections.abc import Callable

from odradek.broker.shares.core.entry import PendingRanges, StateEntry
from odradek.broker.shares.core.in_flight import Acknowledgement, InFlight, Limits, Span, TrackedBatch
from odradek.broker.shares.core.pending_records import PendingRecords
from odradek.broker.shares.core.state import (
    ACCEPT,
    PendingRange,
    PendingTransaction,
    Resolution,
    ResolvedRange,
    SharePartitionKey,
    ShareUpdate,
    StateBatch,
    TransactionEnd,
)
from odradek.broker.shares.core.tables import RecordState
from tests.support.steps import steps_of
from tests.support.variants import pure_only

FEW, MANY = 100, 800
TXN = PendingTransaction("pay", 7, 0)
COMMIT = TransactionEnd(7, 1, True)


def every_second(count: int, epoch: int = 0) -> list[PendingRange]:
    return [PendingRange(2 * at, 2 * at, 7, epoch, ACCEPT, 1, "m", 1, 0, "pay") for at in range(count)]


def grows_linearly(prepared: Callable[[int], Callable[[], object]]) -> bool:
    """Returns whether an action's work is linear in the number of ranges.

    prepared  prepares and returns the action for a number of ranges; only the work of the action itself is counted
    """
    few, many = (steps_of(prepared(count)) for count in (FEW, MANY))
    assert few > FEW  # This shows that the work was counted at all.
    return many < 2 * few * (MANY // FEW)


def shuffled(ranges: list[PendingRange]) -> list[PendingRange]:
    return random.Random(1).sample(ranges, len(ranges))


@pure_only
def test_adding_to_the_overlay_costs_the_same_for_each_range() -> None:
    assert grows_linearly(lambda count: lambda: PendingRanges(every_second(count)))
    assert grows_linearly(lambda count: lambda: PendingRanges(shuffled(every_second(count))))


@pure_only
def test_replacing_and_resolving_pending_ranges_costs_the_same_for_each_range() -> None:
    def replacing(count: int) -> Callable[[], object]:
        overlay = PendingRanges(every_second(count))
        return lambda: overlay.add(shuffled(every_second(count, epoch=1)))

    def resolving(count: int) -> Callable[[], object]:
        overlay = PendingRanges(every_second(count))
        resolved = [ResolvedRange.of(each, Resolution.ABORTED, 0) for each in shuffled(every_second(count))]
        return lambda: overlay.resolve(resolved)

    assert grows_linearly(replacing)
    assert grows_linearly(resolving)


@pure_only
def test_the_first_record_after_a_commit_costs_the_same_for_each_committed_range() -> None:
    def telling(count: int) -> Callable[[], object]:
        entry = StateEntry(SharePartitionKey("g", bytes(16), 0), 0)
        entry.take_update(ShareUpdate(entry.key, 1, 0, 0, 0, pending=every_second(count)))
        entry.take_marker(COMMIT)
        batches = tuple(StateBatch(2 * at, 2 * at, 2, 1) for at in range(count))
        update = ShareUpdate(entry.key, 1, 0, 0, count, batches)
        return lambda: entry.take_update(update)

    assert grows_linearly(telling)


def in_flight(count: int) -> tuple[InFlight, PendingRecords]:
    flight = InFlight(0)
    flight.add(TrackedBatch([Span(0, 2 * count - 1, RecordState.ACQUIRED, 1, "m", 1_000)]))
    return flight, PendingRecords(flight)


def acknowledged(records: PendingRecords, count: int) -> None:
    acks = [Acknowledgement(2 * at, 2 * at, (ACCEPT,)) for at in range(count)]
    records.require_acquired("m", acks, TXN, 0)
    write = records.acknowledge("m", 1, acks, TXN, LIMITS)
    assert write is not None
    records.write_stored(write)


@pure_only
def test_acknowledging_in_a_transaction_costs_the_same_for_each_record() -> None:
    def acknowledging(count: int) -> Callable[[], object]:
        records = in_flight(count)[1]
        return lambda: acknowledged(records, count)

    assert grows_linearly(acknowledging)


@pure_only
def test_adopting_stored_state_after_a_missed_marker_costs_the_same_for_each_record() -> None:
    def adopting(count: int) -> Callable[[], object]:
        _, records = in_flight(count)
        acknowledged(records, count)
        stored = [StateBatch(2 * at, 2 * at, 2, 1) for at in range(count)]
        still_pending = every_second(count)[count // 2 :]
        return lambda: records.adopt_stored_state(TXN, stored, still_pending, LIMITS)

    assert grows_linearly(adopting)


LIMITS = Limits(5, 2_000, 30_000)


def test_the_overlay_keeps_the_later_of_two_ranges_whatever_their_order() -> None:
    """Checks that the overlay has the same producer for each offset as a dictionary updated with the same changes."""
    choice = random.Random(3)
    for _ in range(200):
        overlay, expected = PendingRanges(), dict[int, tuple[int, int]]()
        for _ in range(30):
            first = choice.randrange(40)
            last, producer = first + choice.randrange(-1, 6), (choice.randrange(2), choice.randrange(2))
            offsets = range(first, last + 1)
            if choice.random() < 0.6:
                overlay.add([PendingRange(first, last, *producer, ACCEPT, 1, "m", 1, 0)])
                expected |= dict.fromkeys(offsets, producer)
            else:
                cut = overlay.resolve([ResolvedRange(first, last, *producer, Resolution.ABORTED)])
                taken = {at for each, _ in cut for at in range(each.first_offset, each.last_offset + 1)}
                assert taken == {at for at in offsets if expected.get(at) == producer}
                expected = {at: each for at, each in expected.items() if at not in taken}
        found = {
            at: (each.producer_id, each.producer_epoch)
            for each in overlay.ranges
            for at in range(each.first_offset, each.last_offset + 1)
        }
        assert found == expected
        sizes = [each.last_offset - each.first_offset + 1 for each in overlay.ranges]
        assert sum(sizes) == len(expected)  # The ranges do not overlap.
        assert overlay.ranges == sorted(overlay.ranges)
