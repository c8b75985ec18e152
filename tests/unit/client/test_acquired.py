"""Tests the acknowledgement batches for a member's acquired offsets (docs/spec/share-groups.md#s1-13, #s6-1)."""

from __future__ import annotations

import pytest

from odradek.client.common.values import AcknowledgedRange, AcknowledgeType, TopicPartition
from odradek.client.sharing.acquired import GAP, OPEN, AcquiredRange, Acquisitions, SentAcknowledgements, ranges_of
from odradek.protocol.topic_partition import TopicIdPartition

TOPIC, OTHER = bytes(15) + b"\1", bytes(15) + b"\2"
P = TopicPartition("t", 0)
NAMED = TopicIdPartition(TOPIC, 0)
ACCEPT, RELEASE, REJECT, RENEW = (kind.value for kind in AcknowledgeType)


def holding(*ranges: AcquiredRange) -> Acquisitions:
    acquired = Acquisitions()
    acquired.add(P, TOPIC, ranges)
    return acquired


def delivered(first: int, last: int, *, gaps: tuple[int, ...] = ()) -> AcquiredRange:
    return AcquiredRange(first, bytearray(GAP if offset in gaps else OPEN for offset in range(first, last + 1)))


def batches(sending: SentAcknowledgements) -> list[tuple[int, int, list[int]]]:
    return [(run.first_offset, run.last_offset, run.acknowledge_types) for run in sending.runs]


def sent_batches(acquired: Acquisitions) -> list[tuple[int, int, list[int]]]:
    return [batch for sending in acquired.take().values() for batch in batches(sending)]


def test_a_range_of_one_type_is_one_batch_with_one_type() -> None:
    acquired = holding(delivered(5, 504))
    acquired.accept_all()
    assert sent_batches(acquired) == [(5, 504, [ACCEPT])]
    assert sent_batches(acquired) == []


def test_a_mixed_run_has_a_type_for_each_offset() -> None:
    acquired = holding(delivered(0, 3))
    for offset, kind in enumerate((ACCEPT, ACCEPT, REJECT, RELEASE)):
        assert acquired.acknowledge(P, offset, kind)
    assert sent_batches(acquired) == [(0, 3, [ACCEPT, ACCEPT, REJECT, RELEASE])]


def test_records_without_an_acknowledgement_are_not_sent() -> None:
    acquired = holding(delivered(0, 9))
    for offset in (1, 2, 5):
        acquired.acknowledge(P, offset, ACCEPT)
    assert sent_batches(acquired) == [(1, 2, [ACCEPT]), (5, 5, [ACCEPT])]
    assert acquired.has_open
    acquired.accept_all()
    assert sent_batches(acquired) == [(0, 0, [ACCEPT]), (3, 4, [ACCEPT]), (6, 9, [ACCEPT])]
    assert not acquired.has_open


def test_gaps_are_sent_automatically_and_cannot_be_acknowledged() -> None:
    acquired = holding(delivered(0, 4, gaps=(2, 3)))
    assert not acquired.acknowledge(P, 2, ACCEPT)
    (sending,) = acquired.take().values()
    assert batches(sending) == [(2, 3, [GAP])]
    assert sending.acknowledged == []


def test_batches_ascend_whatever_the_order_of_acknowledgements() -> None:
    acquired = holding(delivered(20, 29), delivered(0, 9))
    acquired.acknowledge(P, 25, REJECT)
    acquired.acknowledge(P, 3, ACCEPT)
    assert sent_batches(acquired) == [(3, 3, [ACCEPT]), (25, 25, [REJECT])]


def test_a_type_may_be_changed_until_it_is_sent() -> None:
    acquired = holding(delivered(0, 0))
    acquired.acknowledge(P, 0, RELEASE)
    acquired.acknowledge(P, 0, ACCEPT)
    assert sent_batches(acquired) == [(0, 0, [ACCEPT])]
    assert not acquired.acknowledge(P, 0, RELEASE)


def test_offsets_that_are_not_acquired_are_refused() -> None:
    acquired = holding(delivered(5, 9))
    assert not acquired.acknowledge(P, 4, ACCEPT)
    assert not acquired.acknowledge(P, 10, ACCEPT)
    assert not acquired.acknowledge(TopicPartition("t", 1), 5, ACCEPT)


def test_a_renewed_record_may_be_acknowledged_again_and_nothing_waits_for_that() -> None:
    acquired = holding(delivered(0, 1))
    acquired.acknowledge(P, 0, ACCEPT)
    acquired.acknowledge(P, 1, RENEW)
    assert acquired.has_renewals
    sending = acquired.take()[NAMED]
    assert (batches(sending), sending.renews) == ([(0, 1, [ACCEPT, RENEW])], True)
    assert not acquired.acknowledge(P, 1, ACCEPT)  # no further acknowledgements until the response arrives
    acquired.settle(sending, is_done=True)
    assert not acquired.has_open
    acquired.accept_all()
    assert sent_batches(acquired) == []
    assert acquired.acknowledge(P, 1, ACCEPT)
    assert sent_batches(acquired) == [(1, 1, [ACCEPT])]


def test_a_record_that_could_not_be_renewed_is_lost() -> None:
    acquired = holding(delivered(0, 0))
    acquired.acknowledge(P, 0, RENEW)
    acquired.settle(acquired.take()[NAMED], is_done=False)
    assert not acquired.acknowledge(P, 0, ACCEPT)


@pytest.mark.parametrize("kind", [ACCEPT, RENEW])
def test_acknowledgements_without_an_outcome_are_sent_again(kind: int) -> None:
    acquired = holding(delivered(0, 3))
    for offset in range(4):
        acquired.acknowledge(P, offset, kind)
    sending = acquired.take()[NAMED]
    acquired.accept_all()  # removes finished records, but not the records that are being sent
    acquired.requeue(sending)
    assert acquired.unsent_partitions == [P]
    assert sent_batches(acquired) == [(0, 3, [kind])]


def test_records_that_are_left_to_a_transaction_are_never_sent() -> None:
    acquired = holding(delivered(0, 3, gaps=(3,)))
    acquired.acknowledge(P, 1, RELEASE)
    acquired.leave_all_delivered()
    assert sent_batches(acquired) == [(1, 1, [RELEASE]), (3, 3, [GAP])]
    assert not acquired.acknowledge(P, 0, ACCEPT)


def test_offsets_that_are_acquired_anew_belong_to_the_new_range() -> None:
    acquired = holding(delivered(0, 9))
    acquired.add(P, TOPIC, [delivered(4, 6)])
    acquired.acknowledge(P, 5, REJECT)
    acquired.accept_all()
    assert sent_batches(acquired) == [(0, 3, [ACCEPT]), (4, 6, [ACCEPT, REJECT, ACCEPT]), (7, 9, [ACCEPT])]
    acquired = holding(delivered(0, 9))
    acquired.add(P, TOPIC, [delivered(0, 9)])
    acquired.accept_all()
    assert sent_batches(acquired) == [(0, 9, [ACCEPT])]


def test_a_topic_of_the_same_name_has_nothing_of_the_one_before() -> None:
    acquired = holding(delivered(0, 9))
    acquired.add(P, OTHER, [delivered(0, 0)])
    acquired.accept_all()
    taking = acquired.take()
    assert list(taking) == [TopicIdPartition(OTHER, 0)]
    assert batches(taking[TopicIdPartition(OTHER, 0)]) == [(0, 0, [ACCEPT])]


def test_the_application_hears_of_records_and_not_of_gaps() -> None:
    acquired = holding(delivered(0, 5, gaps=(2,)))
    acquired.accept_all()
    (sending,) = acquired.take().values()
    assert sending.acknowledged == [(0, 1), (3, 5)]


def test_offsets_are_joined_to_sorted_ranges() -> None:
    assert ranges_of([7, 1, 2, 3, 3, 9]) == [(1, 3), (7, 7), (9, 9)]
    assert ranges_of([]) == []


# Records acknowledged in a producer's transaction (KIP-1289)


def test_records_pending_in_a_transaction_cannot_be_acknowledged_until_it_ends() -> None:
    acquired = holding(delivered(0, 9))
    pending = acquired.make_pending({P: [AcknowledgedRange(2, 4), AcknowledgedRange(8, 12)]})
    assert [acquired.acknowledge(P, offset, ACCEPT) for offset in (1, 2, 4, 5, 8, 9)] == [
        True,
        False,
        False,
        True,
        False,
        False,
    ]
    assert [offset for offset in range(10) if acquired.is_pending(P, offset)] == [2, 3, 4, 8, 9]
    acquired.end_pending(pending, committed=False)
    assert acquired.acknowledge(P, 2, RELEASE)
    assert sent_batches(acquired) == [(1, 2, [ACCEPT, RELEASE]), (5, 5, [ACCEPT])]


def test_after_a_commit_nothing_is_left_to_acknowledge() -> None:
    acquired = holding(delivered(0, 9))
    acquired.end_pending(acquired.make_pending({P: [AcknowledgedRange(0, 9)]}), committed=True)
    assert not acquired.acknowledge(P, 3, ACCEPT)
    assert (acquired.has_open, sent_batches(acquired)) == (False, [])


def test_records_returned_by_an_abort_are_not_open_and_may_become_pending_again() -> None:
    acquired = holding(delivered(0, 9))
    acquired.end_pending(acquired.make_pending({P: [AcknowledgedRange(0, 9)]}), committed=False)
    assert not acquired.has_open
    again = acquired.make_pending({P: [AcknowledgedRange(0, 4)]})
    acquired.leave_returned()  # as the next fetch would do
    acquired.end_pending(again, committed=False)
    assert [acquired.acknowledge(P, offset, RELEASE) for offset in (0, 4, 5, 9)] == [True, True, False, False]


def test_the_end_of_one_transaction_leaves_the_pending_records_of_another() -> None:
    acquired = holding(delivered(0, 9))
    first = acquired.make_pending({P: [AcknowledgedRange(0, 4)]})
    # The broker will refuse this acknowledgement.
    second = acquired.make_pending({P: [AcknowledgedRange(0, 9)]})
    acquired.end_pending(second, committed=False)
    assert [acquired.is_pending(P, offset) for offset in (0, 4, 5, 9)] == [True, True, False, False]
    acquired.end_pending(first, committed=True)
    assert not acquired.acknowledge(P, 0, RELEASE)


@pytest.mark.parametrize("kind", [ACCEPT, RELEASE, REJECT, RENEW])
def test_an_acknowledgement_that_waits_to_be_sent_is_found_before_a_transaction_makes_another(kind: int) -> None:
    acquired = holding(delivered(0, 4), delivered(5, 9, gaps=(6,)))
    acquired.acknowledge(P, 7, kind)
    ranges = {P: [AcknowledgedRange(0, 2), AcknowledgedRange(4, 9)]}
    assert acquired.find_acknowledged(ranges) == (P, 7)
    assert acquired.find_acknowledged({P: [AcknowledgedRange(0, 6), AcknowledgedRange(8, 9)]}) is None
    assert acquired.find_acknowledged({TopicPartition("other", 0): [AcknowledgedRange(0, 9)]}) is None


def test_records_that_are_acquired_again_are_unaffected_by_the_end_of_an_older_transaction() -> None:
    acquired = holding(delivered(0, 9))
    pending = acquired.make_pending({P: [AcknowledgedRange(0, 9)]})
    acquired.add(P, TOPIC, [delivered(0, 9)])  # the locks on these records had expired
    acquired.end_pending(pending, committed=True)
    assert acquired.has_open
    assert acquired.acknowledge(P, 3, ACCEPT)


def test_a_hundred_thousand_ranges_are_made_pending_in_one_pass() -> None:
    acquired = holding(*(delivered(offset, offset + 3) for offset in range(0, 400_000, 4)))
    ranges = {P: [AcknowledgedRange(offset, offset) for offset in range(0, 400_000, 4)]}
    assert acquired.find_acknowledged(ranges) is None
    assert len(acquired.make_pending(ranges)) == 100_000
