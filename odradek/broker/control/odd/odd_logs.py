"""Makes a cluster's logs and producer ids odd. Odd records are appended by the same code as other records."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from odradek.broker.control.odd.odd import FIRST_HIGH_PRODUCER_ID
from odradek.protocol.batch_header import MAGIC, BatchHeader, pack_batch
from odradek.protocol.control_records import marker_batch
from odradek.protocol.errors import KafkaError
from odradek.storage.producer_state import INT32_MAX, Origin

if TYPE_CHECKING:
    from collections.abc import Callable

    from odradek.broker.control.odd.odd import Odd
    from odradek.broker.coordinators.producer_ids import OnProducerId
    from odradek.broker.coordinators.transaction_coordinator import ProducerIdSource
    from odradek.broker.partitions.partition import Partition

log = logging.getLogger("odradek.broker")
NOBODY: Final = FIRST_HIGH_PRODUCER_ID - 1  # producer id of emptied batches
LAST_EPOCH: Final = 32_766
MAX_HOLE_OFFSETS: Final = 100
MAX_OFFSET_BEYOND_INT32: Final = 1_000_000  # maximum distance of the first offset from 2³¹


class OddProducerIds:
    """A `ProducerIdSource` that makes some of the new producer ids very large."""

    def __init__(self, plain: ProducerIdSource, current: Callable[[], Odd | None]) -> None:
        self._plain = plain
        self._current = current

    def allocate(self, then: OnProducerId) -> None:
        odd = self._current()
        if odd is None:
            self._plain.allocate(then)
        else:
            self._plain.allocate(lambda found: then(found if isinstance(found, KafkaError) else odd.producer_id(found)))


def begin_log(odd: Odd | None, partition: Partition, now_ms: int) -> None:
    """Decides at random whether a new log begins beyond offset 2³¹, as if older records had been deleted."""
    if odd is None or partition.is_internal or not odd.applies("high offset"):
        return
    try:
        for count in (INT32_MAX + 1, odd.random.randint(1, MAX_OFFSET_BEYOND_INT32)):
            partition.append_now(emptied_batch(count, now_ms), origin=Origin.COORDINATOR, now_ms=now_ms)
    except KafkaError as error:  # clients that write to the partition will get the same error
        log.warning("the log of %s cannot begin at a high offset: %s", partition, error)
    partition.log.delete_records_before(partition.log.high_watermark)


def leave_hole(odd: Odd, partition: Partition, now_ms: int) -> None:
    """Decides at random whether to append the empty batch and the abort marker that compaction leaves behind for an
    aborted transaction. Raises KafkaError."""
    producer = partition.log.producer(NOBODY)
    epoch = 0 if producer is None else producer.producer_epoch + 1
    if partition.is_internal or epoch > LAST_EPOCH or not odd.applies("hole"):
        return
    count = odd.random.randint(1, MAX_HOLE_OFFSETS)
    emptied = emptied_batch(count, now_ms, NOBODY, epoch)
    marker = marker_batch(
        producer_id=NOBODY, producer_epoch=epoch, is_commit=False, coordinator_epoch=0, timestamp_ms=now_ms
    )
    for batch in (emptied, marker):
        partition.append_now(batch, origin=Origin.COORDINATOR, now_ms=now_ms)


def emptied_batch(count: int, now_ms: int, producer_id: int = -1, producer_epoch: int = -1) -> bytearray:
    """Returns the empty batch that compaction leaves after it has removed all `count` records."""
    header = BatchHeader(
        base_offset=0,
        batch_length=0,
        leader_epoch=-1,
        magic=MAGIC,
        crc=0,
        attributes=0,
        last_offset_delta=count - 1,
        base_timestamp=now_ms,
        max_timestamp=now_ms,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=-1 if producer_id < 0 else 0,
        record_count=0,
    )
    return pack_batch(header, b"")
