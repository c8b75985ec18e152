"""No two producers ever get the same id, restarts and failures of the metadata log included."""

from collections.abc import Callable

from broker.producer_ids import BLOCK_SIZE, PREFETCH_AFTER, ProducerIds
from protocol.errors import ErrorCode, KafkaError

Answer = int | KafkaError


class MetadataLog:
    """Gives out blocks, each when the test says that it is durable."""

    def __init__(self, next_id: int = 0) -> None:
        self.next_id = next_id
        self.asked: list[Callable[[Answer], None]] = []

    def allocate_producer_ids(self, count: int, then: Callable[[Answer], None]) -> None:
        assert count == BLOCK_SIZE
        self.asked.append(then)

    def commit(self) -> None:
        first, self.next_id = self.next_id, self.next_id + BLOCK_SIZE
        self.asked.pop(0)(first)

    def fail(self) -> None:
        self.asked.pop(0)(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR))


def test_no_id_is_given_out_before_its_block_is_durable() -> None:
    log, given = MetadataLog(), list[Answer]()
    ids = ProducerIds(log)
    ids.take(given.append)
    ids.take(given.append)
    assert given == []
    log.commit()
    assert given == [0, 1]


def test_those_who_wait_share_one_block() -> None:
    log, given = MetadataLog(), list[Answer]()
    ids = ProducerIds(log)
    for _ in range(3):
        ids.take(given.append)
    assert len(log.asked) == 1


def test_the_ids_of_a_block_follow_one_another_and_then_the_next_block_comes() -> None:
    log, given = MetadataLog(5_000), list[Answer]()
    ids = ProducerIds(log)
    for _ in range(BLOCK_SIZE + 1):
        ids.take(given.append)
        while log.asked:
            log.commit()
    assert given == list(range(5_000, 5_000 + BLOCK_SIZE + 1))


def test_the_next_block_is_asked_for_before_the_last_is_used_up() -> None:
    log, given = MetadataLog(), list[Answer]()
    ids = ProducerIds(log)
    ids.take(given.append)
    log.commit()
    for _ in range(PREFETCH_AFTER - 2):
        ids.take(given.append)
    assert log.asked == []
    ids.take(given.append)
    assert len(log.asked) == 1
    for _ in range(BLOCK_SIZE - PREFETCH_AFTER):
        ids.take(given.append)
    assert given == list(range(BLOCK_SIZE))


def test_a_failed_allocation_is_told_to_those_who_wait_and_tried_again_for_the_next() -> None:
    log, given = MetadataLog(), list[Answer]()
    ids = ProducerIds(log)
    ids.take(given.append)
    log.fail()
    assert isinstance(given[0], KafkaError)
    ids.take(given.append)
    log.commit()
    assert given[1:] == [0]


def test_a_restart_begins_with_a_new_block() -> None:
    log, before, after = MetadataLog(), list[Answer](), list[Answer]()
    ProducerIds(log).take(before.append)
    log.commit()
    restarted = MetadataLog(log.next_id)
    ids = ProducerIds(restarted)
    ids.take(after.append)
    restarted.commit()
    assert before == [0]
    assert after == [BLOCK_SIZE]
