"""Tests the outbox of one partition, in which earlier responses determine when a batch may be sent and with which
sequence."""

from odradek.client.common.values import TopicPartition
from odradek.client.producing.outbox import Gap, Outbox
from odradek.client.producing.producer_batch import LARGEST_SEQUENCE, ProducerBatch, ProducerIdentity

FIRST, NEXT = ProducerIdentity(7, 0), ProducerIdentity(7, 1)
RECORDS = 10


def an_outbox(*, first_alone: bool = False, is_idempotent: bool = True) -> Outbox:
    return Outbox(TopicPartition("t", 0), is_idempotent=is_idempotent, first_alone=lambda: first_alone)


def fill(outbox: Outbox, count: int) -> list[ProducerBatch]:
    batches = []
    for _ in range(count):
        batch = outbox.open_batch(0.0, 0)
        batch.record_count = RECORDS
        batches.append(batch)
    return batches


def send(outbox: Outbox, identity: ProducerIdentity = FIRST) -> list[ProducerBatch]:
    """Sends all batches that may be sent now and returns them."""
    sent = []
    while (batch := outbox.next_to_send(identity)) is not None:
        outbox.mark_sent(batch, identity)
        sent.append(batch)
    return sent


def sequences(batches: list[ProducerBatch]) -> list[int]:
    return [batch.base_sequence for batch in batches]


def test_sequences_count_records_and_begin_at_0() -> None:
    outbox = an_outbox()
    fill(outbox, 3)
    assert sequences(send(outbox)) == [0, 10, 20]


def test_sequences_wrap_to_0() -> None:
    outbox = an_outbox()
    (batch,) = fill(outbox, 1)
    batch.number(FIRST, LARGEST_SEQUENCE - RECORDS + 1)
    assert batch.end_sequence == 0


def test_only_one_batch_is_in_flight_before_the_first_response_of_an_unknown_producer() -> None:
    outbox = an_outbox(first_alone=True)
    first, *others = fill(outbox, 3)
    assert send(outbox) == [first]
    outbox.remove_written(first)
    assert send(outbox) == others


def test_a_batch_that_goes_again_keeps_its_sequence_and_its_place() -> None:
    outbox = an_outbox()
    batches = fill(outbox, 3)
    send(outbox)
    for batch in reversed(batches):
        outbox.requeue(batch, 0.0)
    assert send(outbox) == batches
    assert sequences(batches) == [0, 10, 20]


def test_nothing_goes_while_a_batch_waits_to_go_again_and_others_are_under_way() -> None:
    outbox = an_outbox()
    first, second = fill(outbox, 2)
    send(outbox)
    fill(outbox, 1)
    outbox.requeue(first, 0.0)
    assert send(outbox) == []
    outbox.requeue(second, 0.0)
    assert send(outbox) == [first, second], "new ones wait until these are answered"
    outbox.remove_written(first)
    outbox.remove_written(second)
    assert sequences(send(outbox)) == [20]


def test_a_batch_before_one_that_was_written_was_written_as_well() -> None:
    outbox = an_outbox()
    first, second = fill(outbox, 2)
    send(outbox)
    outbox.requeue(first, 0.0)
    outbox.remove_written(second)
    send(outbox)
    assert outbox.classify_gap(first) is Gap.WRITTEN_BEFORE


def test_a_batch_sent_before_its_turn_goes_again() -> None:
    """Checks that a batch is sent again if it caused a gap in the sequence only because the batch before it received a
    transient error."""
    outbox = an_outbox()
    first, second = fill(outbox, 2)
    send(outbox)
    outbox.requeue(first, 0.0)
    assert outbox.classify_gap(second) is Gap.SENT_TOO_EARLY


def test_a_gap_without_an_unanswered_batch_is_real() -> None:
    """Checks that the client did not cause the gap if no earlier batch is unanswered. In that case, the broker has
    forgotten the producer or has lost acknowledged records."""
    outbox = an_outbox()
    first, second = fill(outbox, 2)
    send(outbox)
    outbox.remove_written(first)
    assert outbox.classify_gap(second) is Gap.REAL


def test_after_a_real_gap_what_waits_is_numbered_from_0_in_a_new_epoch() -> None:
    outbox = an_outbox()
    first, second, third = fill(outbox, 3)
    send(outbox)
    outbox.remove_written(first)
    outbox.requeue_from(second, 0.0)
    assert not outbox.needs_new_epoch(FIRST), "one is still under way"
    assert outbox.classify_gap(third) is Gap.SENT_TOO_EARLY
    outbox.requeue(third, 0.0)
    assert outbox.needs_new_epoch(FIRST)
    assert send(outbox) == []
    outbox.begin_epoch(NEXT)
    assert send(outbox, NEXT) == [second, third]
    assert sequences([second, third]) == [0, 10]
    assert {second.identity, third.identity} == {NEXT}


def test_the_sequence_of_a_refused_batch_is_the_next_ones_if_none_was_sent() -> None:
    outbox = an_outbox()
    (first,) = fill(outbox, 1)
    send(outbox)
    outbox.remove_refused(first)
    assert not outbox.needs_new_epoch(FIRST)
    fill(outbox, 1)
    assert sequences(send(outbox)) == [0]


def test_batches_that_followed_a_refused_one_take_a_new_epoch() -> None:
    """Checks that batches after a refused batch need a new epoch. If they were renumbered in the old epoch, a copy on a
    lost connection could be appended too."""
    outbox = an_outbox()
    first, second = fill(outbox, 2)
    send(outbox)
    outbox.remove_refused(first)
    assert outbox.classify_gap(second) is Gap.SENT_TOO_EARLY
    outbox.requeue(second, 0.0)
    assert outbox.needs_new_epoch(FIRST)


def test_a_batch_given_up_before_it_was_sent_leaves_no_gap() -> None:
    outbox = an_outbox()
    first, second = fill(outbox, 2)
    outbox.give_up(first)
    assert send(outbox) == [second]
    assert second.base_sequence == 0


def test_a_batch_given_up_under_way_holds_back_new_ones_until_its_fate_is_known() -> None:
    outbox = an_outbox()
    (first,) = fill(outbox, 1)
    send(outbox)
    first.is_done = True
    outbox.give_up(first)
    outbox.requeue(first, 0.0)
    fill(outbox, 1)
    assert send(outbox) == []
    assert outbox.needs_new_epoch(FIRST)


def test_an_acknowledged_later_batch_proves_that_an_expired_batch_was_written() -> None:
    outbox = an_outbox()
    first, second = fill(outbox, 2)
    send(outbox)
    first.is_done = True
    outbox.requeue(first, 0.0)
    outbox.requeue(second, 0.0)
    assert send(outbox) == [second]
    outbox.remove_written(second)
    assert not outbox.needs_new_epoch(FIRST)
    fill(outbox, 1)
    assert sequences(send(outbox)) == [20]


def test_a_gap_at_a_later_batch_proves_that_an_expired_batch_was_not_written() -> None:
    outbox = an_outbox()
    first, second = fill(outbox, 2)
    send(outbox)
    first.is_done = True
    outbox.requeue(first, 0.0)
    outbox.requeue(second, 0.0)
    send(outbox)
    assert outbox.classify_gap(second) is Gap.REAL


def test_a_batch_that_may_still_arrive_after_an_expired_one_is_not_sent_again() -> None:
    outbox = an_outbox()
    first, second, third = fill(outbox, 3)
    outbox.mark_sent(first, FIRST)
    outbox.mark_sent(second, FIRST)
    first.is_done = True
    outbox.requeue(first, 0.0, was_lost=True)
    outbox.requeue(second, 0.0, was_lost=True)
    (again,) = send(outbox)
    outbox.requeue_from(again, 0.0)
    assert outbox.begin_epoch(NEXT) == [second]
    assert send(outbox, NEXT) == [third]


def test_a_batch_refused_when_it_went_again_may_have_been_written_the_first_time() -> None:
    outbox = an_outbox()
    (first,) = fill(outbox, 1)
    send(outbox)
    outbox.requeue(first, 0.0)
    send(outbox)
    outbox.remove_refused(first)
    fill(outbox, 1)
    assert outbox.needs_new_epoch(FIRST)


def test_a_new_transactions_batches_begin_at_0_once_the_old_ones_are_answered() -> None:
    outbox = an_outbox()
    (old,) = fill(outbox, 1)
    send(outbox)
    (new,) = fill(outbox, 1)
    assert send(outbox, NEXT) == []
    outbox.remove_written(old)
    assert send(outbox, NEXT) == [new]
    assert (new.identity, new.base_sequence) == (NEXT, 0)


def test_an_aborted_transaction_leaves_nothing_to_the_next() -> None:
    outbox = an_outbox()
    first, second = fill(outbox, 2)
    send(outbox)
    outbox.remove_refused(first)
    outbox.requeue(second, 0.0)
    assert outbox.discard_waiting() == [second]
    assert outbox.needs_new_epoch(FIRST), "before transaction.version 2 the identity stays"
    assert not outbox.needs_new_epoch(NEXT)
    fill(outbox, 1)
    assert sequences(send(outbox, NEXT)) == [0]


def test_without_idempotence_there_are_no_sequences_but_the_order_stays() -> None:
    outbox = an_outbox(is_idempotent=False)
    batches = fill(outbox, 3)
    send(outbox)
    outbox.remove_refused(batches[0])
    for batch in (batches[2], batches[1]):
        outbox.requeue(batch, 0.0)
    assert send(outbox) == batches[1:]
    assert sequences(batches) == [-1, -1, -1]
