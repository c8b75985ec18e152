"""Tests that producer ids are never assigned twice, even across restarts and failures of the metadata log.

Rules: docs/spec/transactions.md#s6; scenarios: #s8-9.
"""

from collections.abc import Callable

from odradek.broker.coordinators.producer_ids import BLOCK_SIZE, PREFETCH_AFTER, ProducerIds
from odradek.protocol.errors import ErrorCode, KafkaError
from tests.support.clock import ManualTimers

Answer = int | KafkaError
LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


class MetadataLog:
    """Allocates blocks of producer ids. The test decides when each block becomes durable."""

    def __init__(self, next_id: int = 0) -> None:
        self.next_id = next_id
        self.pending_answers: list[Callable[[Answer], None]] = []

    def allocate_producer_ids(self, count: int, then: Callable[[Answer], None]) -> None:
        assert count == BLOCK_SIZE
        self.pending_answers.append(then)

    def commit(self) -> None:
        first, self.next_id = self.next_id, self.next_id + BLOCK_SIZE
        self.pending_answers.pop(0)(first)

    def fail(self) -> None:
        self.pending_answers.pop(0)(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR))


def test_no_id_is_given_out_before_its_block_is_durable() -> None:
    log, given = MetadataLog(), list[Answer]()
    ids = ProducerIds(log, ManualTimers())
    ids.allocate(given.append)
    ids.allocate(given.append)
    assert given == []
    log.commit()
    assert given == [0, 1]


def test_waiting_producers_share_one_block_of_ids() -> None:
    log, given = MetadataLog(), list[Answer]()
    ids = ProducerIds(log, ManualTimers())
    for _ in range(3):
        ids.allocate(given.append)
    assert len(log.pending_answers) == 1


def test_scenario_136_the_ids_of_a_block_follow_one_another_and_then_the_next_block_comes() -> None:
    log, given = MetadataLog(5_000), list[Answer]()
    ids = ProducerIds(log, ManualTimers())
    for _ in range(BLOCK_SIZE + 1):
        ids.allocate(given.append)
        while log.pending_answers:
            log.commit()
    assert given == list(range(5_000, 5_000 + BLOCK_SIZE + 1))


def test_scenario_136_the_next_block_is_asked_for_before_the_last_is_used_up() -> None:
    log, given = MetadataLog(), list[Answer]()
    ids = ProducerIds(log, ManualTimers())
    ids.allocate(given.append)
    log.commit()
    for _ in range(PREFETCH_AFTER - 2):
        ids.allocate(given.append)
    assert log.pending_answers == []
    ids.allocate(given.append)
    assert len(log.pending_answers) == 1
    for _ in range(BLOCK_SIZE - PREFETCH_AFTER):
        ids.allocate(given.append)
    assert given == list(range(BLOCK_SIZE))


def test_scenario_137_a_failed_allocation_answers_loading_and_is_retried_50_ms_later() -> None:
    log, timers, given = MetadataLog(), ManualTimers(), list[Answer]()
    ids = ProducerIds(log, timers)
    ids.allocate(given.append)
    log.fail()
    ids.allocate(given.append)
    assert [each.code for each in given if isinstance(each, KafkaError)] == [LOADING, LOADING]
    assert log.pending_answers == []
    timers.advance(50)
    ids.allocate(given.append)
    log.commit()
    assert given[2:] == [0]


def test_a_failed_allocation_of_the_next_block_leaves_the_ids_of_the_current_one() -> None:
    log, timers, given = MetadataLog(), ManualTimers(), list[Answer]()
    ids = ProducerIds(log, timers)
    ids.allocate(given.append)
    log.commit()
    while not log.pending_answers:
        ids.allocate(given.append)
    log.fail()
    ids.allocate(given.append)
    assert given == list(range(PREFETCH_AFTER + 1))


def test_scenario_136_a_restart_begins_with_a_new_block() -> None:
    log, before, after = MetadataLog(), list[Answer](), list[Answer]()
    ProducerIds(log, ManualTimers()).allocate(before.append)
    log.commit()
    restarted = MetadataLog(log.next_id)
    ids = ProducerIds(restarted, ManualTimers())
    ids.allocate(after.append)
    restarted.commit()
    assert before == [0]
    assert after == [BLOCK_SIZE]
