"""A partition whose appends are written in the next tick, and whose log is synced by threads that the test controls."""

from typing import Any

from odradek.broker.partitions.partition import Partition
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.records import batches
from odradek.storage.log import Origin
from tests.support.batches import batch_by
from tests.support.broker_scene import NOW_MS, BrokerScene
from tests.support.fake_disk import FakeDisk

Outcomes = list[KafkaError | None]


class GroupCommitScene:
    def __init__(self, **settings: Any) -> None:
        self.disk = FakeDisk()
        self.scene = BrokerScene(self.disk, "/data")
        self.scene.topic("t", **settings)
        self.partition = self.scene.partition("t")

    def append(self, value: bytes = b"v", *, producer: tuple[int, int] | None = None) -> Outcomes:
        outcomes: Outcomes = []
        self.partition.append(batch(value, producer), origin=Origin.CLIENT, now_ms=NOW_MS, on_done=outcomes.append)
        return outcomes

    def values(self) -> list[bytes]:
        return values_in(self.partition)


def batch(value: bytes, producer: tuple[int, int] | None = None) -> bytearray:
    producer_id, sequence = producer or (-1, -1)
    return batch_by((producer_id, 0 if producer else -1), sequence, value, key=None, at_ms=NOW_MS, transactional=False)


def values_in(partition: Partition) -> list[bytes]:
    """Returns the value of each single-record batch as a reader sees it."""
    log = partition.log
    read = log.reader.read(log.log_start_offset, max_bytes=1 << 20)
    data = b"".join(read.chunks)
    return [data[position + 67 : position + header.size_bytes - 1] for position, header in batches(data)]


def failed(outcomes: Outcomes) -> bool:
    return [error.code if error else None for error in outcomes] == [ErrorCode.KAFKA_STORAGE_ERROR]
