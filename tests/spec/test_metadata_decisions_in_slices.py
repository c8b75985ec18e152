"""Tests that the metadata log's decisions about very many entries are made in slices."""

from collections.abc import Callable

import pytest

from odradek.broker.metadata.image import MetadataImage
from odradek.broker.metadata.records import Decision
from odradek.broker.runtime.slices import ENTRIES_PER_SLICE, Steps
from odradek.protocol.errors import ErrorCode, KafkaError
from tests.support.fake_disk import FakeDisk
from tests.support.metadata import Running, topic_records


def in_two_slices(decision: Decision[str] | KafkaError) -> Callable[[MetadataImage], Steps[Decision[str]]]:
    def decide(image: MetadataImage) -> Steps[Decision[str]]:
        topics = dict(image.topics)
        for _ in range(ENTRIES_PER_SLICE + 1):
            yield
        assert image.topics == topics
        if isinstance(decision, KafkaError):
            raise decision
        return decision

    return decide


@pytest.mark.parametrize("decision", [Decision("first", tuple(topic_records("a"))), Decision("first")])
def test_a_decision_in_slices_is_made_before_the_next_one_which_sees_what_it_changed(decision: Decision[str]) -> None:
    turns: list[Callable[[], None]] = []
    running = Running(FakeDisk(), later=turns.append)
    first = running.metadata.submit(in_two_slices(decision))
    second = running.metadata.submit(lambda image: Decision(list(image.topics), tuple(topic_records("b"))))
    assert not first.is_done
    assert not second.is_done
    (go_on,) = turns
    go_on()
    assert first.outcome() == "first"
    assert second.outcome() == (["a"] if decision.records else [])


def test_a_decision_in_slices_may_be_a_refusal() -> None:
    turns: list[Callable[[], None]] = []
    running = Running(FakeDisk(), later=turns.append)
    first = running.metadata.submit(in_two_slices(KafkaError(ErrorCode.POLICY_VIOLATION)))
    second = running.metadata.commit(topic_records("b"))
    turns.pop()()
    with pytest.raises(KafkaError):
        first.outcome()
    assert second.is_done


def test_a_broker_that_stops_drops_an_unfinished_decision() -> None:
    turns: list[Callable[[], None]] = []
    disk = FakeDisk()
    running = Running(disk, later=turns.append)
    answer = running.metadata.submit(in_two_slices(Decision("first", tuple(topic_records("a")))))
    running.stop()
    turns.pop()()
    assert not answer.is_done
    assert "a" not in running.metadata.image.topics
    assert "a" not in Running(disk.after_kill()).metadata.image.topics
