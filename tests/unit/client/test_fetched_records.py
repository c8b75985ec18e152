"""Tests which records of a log a read_committed consumer receives, according to KIP-98's rule for aborted
transactions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.client.common.values import TopicPartition
from odradek.client.consuming.fetched import FetchedRecords
from odradek.protocol.control_records import marker_batch
from odradek.protocol.errors import MalformedMessage
from odradek.protocol.messages.fetch_response import AbortedTransaction
from odradek.protocol.records import NewRecord, batches, build_batch, read_batch_header

ORDERS = TopicPartition("orders", 0)
ALL = 1_000


class Log:
    """Consecutive batches, each added at the log end offset."""

    def __init__(self, start: int = 0) -> None:
        self.bytes = b""
        self.end = start

    def plain(self, *values: str, epoch: int = 4) -> "Log":
        return self._add(build_batch(_records(values), base_offset=self.end, leader_epoch=epoch))

    def of_transaction(self, producer_id: int, *values: str) -> "Log":
        batch = build_batch(
            _records(values),
            base_offset=self.end,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=0,
            is_transactional=True,
        )
        return self._add(batch)

    def marker(self, producer_id: int, *, is_commit: bool) -> "Log":
        batch = marker_batch(
            producer_id=producer_id,
            producer_epoch=0,
            is_commit=is_commit,
            coordinator_epoch=0,
            timestamp_ms=0,
            base_offset=self.end,
        )
        return self._add(batch)

    def _add(self, batch: bytearray) -> "Log":
        self.bytes += bytes(batch)
        self.end = read_batch_header(batch).next_offset
        return self


def _records(values: tuple[str, ...]) -> list[NewRecord]:
    return [NewRecord(None, value.encode(), 0) for value in values]


def aborted(*transactions: tuple[int, int]) -> list[AbortedTransaction]:
    """Returns AbortedTransaction objects for these (producer id, first offset) pairs."""
    return [AbortedTransaction(producer_id=producer_id, first_offset=first) for producer_id, first in transactions]


def committed(log: Log, *transactions: tuple[int, int], offset: int = 0) -> FetchedRecords:
    return FetchedRecords(ORDERS, log.bytes, offset, aborted=aborted(*transactions))


def values(fetched: FetchedRecords, at_most: int = ALL) -> list[str]:
    found: list[str] = []
    while taken := fetched.take(at_most):
        found += [(record.value or b"").decode() for record in taken]
    return found


def test_records_of_an_aborted_transaction_are_not_given() -> None:
    log = Log().plain("a").of_transaction(7, "b", "c").plain("d").marker(7, is_commit=False).plain("e")
    assert values(committed(log, (7, 1))) == ["a", "d", "e"]


def test_read_uncommitted_returns_aborted_records_but_no_markers() -> None:
    log = Log().plain("a").of_transaction(7, "b").marker(7, is_commit=False).plain("c")
    assert values(FetchedRecords(ORDERS, log.bytes, 0, aborted=None)) == ["a", "b", "c"]


def test_a_producer_s_next_transaction_begins_behind_the_marker_of_the_aborted_one() -> None:
    log = Log().of_transaction(7, "a").marker(7, is_commit=False).of_transaction(7, "b").marker(7, is_commit=True)
    assert values(committed(log, (7, 0))) == ["b"]


def test_a_producer_s_earlier_transaction_is_given() -> None:
    log = Log().of_transaction(7, "a").marker(7, is_commit=True).of_transaction(7, "b").marker(7, is_commit=False)
    assert values(committed(log, (7, 2))) == ["a"]


def test_two_aborted_transactions_of_one_producer_are_told_apart() -> None:
    log = Log()
    for value, is_commit in (("a", False), ("b", True), ("c", False), ("d", True)):
        log.of_transaction(7, value).marker(7, is_commit=is_commit)
    assert values(committed(log, (7, 4), (7, 0))) == ["b", "d"]


def test_transactions_of_two_producers_that_interleave_end_each_for_itself() -> None:
    log = Log().of_transaction(7, "a").of_transaction(8, "b").of_transaction(7, "c")
    log.marker(8, is_commit=True).of_transaction(8, "d").marker(7, is_commit=False).marker(8, is_commit=True)
    assert values(committed(log, (7, 0))) == ["b", "d"]


def test_a_transaction_that_began_before_what_was_fetched_is_still_aborted() -> None:
    log = Log(start=100).of_transaction(7, "b").marker(7, is_commit=False).of_transaction(7, "c")
    assert values(committed(log, (7, 40), offset=100)) == ["c"]


def test_records_that_are_not_of_a_transaction_are_given_though_their_producer_is_aborting_one() -> None:
    plain = build_batch(_records(("b",)), base_offset=1, producer_id=7, producer_epoch=0, base_sequence=1)
    log = Log().of_transaction(7, "a")
    log.bytes += bytes(plain)
    assert values(committed(log, (7, 0))) == ["b"]


def test_the_next_offset_is_behind_batches_that_hold_nothing_for_the_application() -> None:
    log = Log().plain("a").of_transaction(7, "b").marker(7, is_commit=False)
    fetched = committed(log, (7, 1))
    assert fetched.end_offset == 3
    assert values(fetched) == ["a"]
    assert fetched.next_offset == 3
    assert fetched.is_exhausted


def test_records_are_given_in_pieces_and_the_next_offset_follows() -> None:
    fetched = committed(Log(start=10).plain("a", "b", "c").plain("d"), offset=10)
    seen = []
    while taken := fetched.take(2):
        seen.append(([record.offset for record in taken], fetched.next_offset))
    assert seen == [([10, 11], 12), ([12], 13), ([13], 14)]


def test_a_fetch_from_amid_a_batch_gives_nothing_before_it() -> None:
    assert values(committed(Log(start=10).plain("a", "b", "c").plain("d"), offset=12)) == ["c", "d"]


PRODUCERS = (7, 8, 9)
STEPS = st.lists(
    st.sampled_from([("plain", 0), *((what, each) for what in ("send", "commit", "abort") for each in PRODUCERS)])
)


@given(STEPS, st.data())
def test_wherever_reading_begins_exactly_the_records_that_are_not_aborted_are_given(
    steps: list[tuple[str, int]], choices: st.DataObject
) -> None:
    """Checks that a consumer receives exactly the records that are not aborted, at whichever offset it starts reading.

    The response contains the records from the fetch offset to the last stable offset. It lists the aborted transactions
    whose marker is at or after the fetch offset.
    """
    log = Log()
    begun: dict[int, int] = {}  # first offset of the open transaction, by producer id
    # by record offset: (producer id, first offset of the record's transaction)
    of_transaction: dict[int, tuple[int, int]] = {}
    aborted_ones: list[tuple[int, int, int]] = []  # (producer id, first offset, offset of the marker)
    plain: list[int] = []
    starts = [0]
    for what, producer in steps:
        offset = log.end
        if what == "plain":
            plain.append(offset)
            log.plain(str(offset))
        elif what == "send":
            of_transaction[offset] = (producer, begun.setdefault(producer, offset))
            log.of_transaction(producer, str(offset))
        elif producer in begun:
            if what == "abort":
                aborted_ones.append((producer, begun[producer], offset))
            del begun[producer]
            log.marker(producer, is_commit=what == "commit")
        starts.append(log.end)
    last_stable = min(begun.values(), default=log.end)
    start = choices.draw(st.sampled_from([each for each in starts if each <= last_stable]))
    lost = {(producer, first) for producer, first, _ in aborted_ones}
    expected = [each for each in plain if start <= each < last_stable]
    expected += [each for each, whose in of_transaction.items() if start <= each < last_stable and whose not in lost]
    sizes = [header.size_bytes for _, header in batches(log.bytes)]
    bytes_at = {offset: sum(sizes[:place]) for place, offset in enumerate(dict.fromkeys(starts))}
    transactions = [(producer, first) for producer, first, marker in aborted_ones if marker >= start]
    answer = log.bytes[bytes_at[start] : bytes_at[last_stable]]
    fetched = FetchedRecords(ORDERS, answer, start, aborted=aborted(*transactions))
    assert [int(each) for each in values(fetched)] == sorted(expected)


def test_a_batch_cut_short_at_the_end_is_left_for_the_next_fetch() -> None:
    log = Log().plain("a").plain("b")
    fetched = FetchedRecords(ORDERS, log.bytes[:-1], 0, aborted=[])
    assert fetched.end_offset == 1
    assert values(fetched) == ["a"]


def test_a_first_batch_that_is_cut_short_is_noticed() -> None:
    assert FetchedRecords(ORDERS, Log().plain("a").bytes[:-1], 0, aborted=[]).is_cut_short


def test_the_leader_epoch_is_that_of_the_batch_given_last() -> None:
    fetched = committed(Log().plain("a", epoch=4).plain("b", epoch=5))
    epochs = []
    while fetched.take(ALL):
        epochs.append(fetched.leader_epoch)
    assert epochs == [4, 5]


def test_a_damaged_batch_is_refused_when_its_turn_comes() -> None:
    log = Log().plain("a").plain("b")
    damaged = bytearray(log.bytes)
    damaged[-2] ^= 1
    fetched = FetchedRecords(ORDERS, damaged, 0, aborted=[])
    assert [record.value for record in fetched.take(ALL)] == [b"a"]
    with pytest.raises(MalformedMessage, match=r"offset 1 .*CRC"):
        fetched.take(ALL)
    assert fetched.next_offset == 1


def test_batches_that_cannot_be_told_apart_are_refused_at_once() -> None:
    with pytest.raises(MalformedMessage, match="less than its header"):
        FetchedRecords(ORDERS, bytes(61), 0, aborted=[])
