"""Tests that records are delivered one at a time or together, and that the consumer always knows which records it has
not delivered yet."""

from odradek.client.common.values import ConsumerRecord, TopicPartition
from odradek.client.consuming.delivery import Delivery

A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)


def loaded(*offsets: int) -> Delivery:
    delivery = Delivery()
    delivery.load(A, [ConsumerRecord("orders", 0, offset, 0, None, b"v", ()) for offset in offsets])
    return delivery


def test_records_come_in_order_and_the_position_is_that_of_the_next() -> None:
    delivery = loaded(5, 7)
    seen = []
    while (record := delivery.take()) is not None:
        seen.append((record.offset, delivery.position(A)))
    assert seen == [(5, 7), (7, None)]


def test_there_is_no_position_of_another_partition() -> None:
    assert loaded(5).position(B) is None


def test_nothing_is_given_while_it_is_held_and_nothing_is_lost() -> None:
    delivery = loaded(5)
    delivery.is_held = True
    assert delivery.take() is None
    assert delivery.take_rest(10) is None
    assert delivery.position(A) == 5
    delivery.is_held = False
    assert delivery.take() is not None


def test_the_rest_is_given_at_once_up_to_a_limit() -> None:
    delivery = loaded(5, 6, 7, 8)
    delivery.take()
    rest = delivery.take_rest(2)
    assert rest is not None
    assert (rest[0], [record.offset for record in rest[1]]) == (A, [6, 7])
    assert delivery.position(A) == 8


def test_dropped_records_are_not_returned() -> None:
    delivery = loaded(5)
    delivery.drop()
    assert delivery.take() is None


def test_every_take_is_progress() -> None:
    delivery = loaded(5, 6)
    seen = {delivery.progress}
    delivery.take()
    seen.add(delivery.progress)
    delivery.take()
    seen.add(delivery.progress)
    assert len(seen) == 3
