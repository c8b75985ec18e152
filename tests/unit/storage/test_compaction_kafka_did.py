"""Tests that Odradek's cleaner creates the same bytes as Kafka's cleaner from the same input. Kafka's cleaner left the
input (`.deleted`) beside its output."""

from pathlib import Path

import pytest

from odradek.protocol.batch_header import batches, read_batch_header
from odradek.storage.compaction import (
    BatchAt,
    LastProducerBatch,
    PassRules,
    PassTransactions,
    RecordFilter,
    collect_keys,
)
from odradek.storage.key_map import KeyMap
from tests.support.oracle import needs_oracle, unpack

PRODUCER = 12
DELETE_RETENTION_MS = {"compacted": 600_000, "compacted-deleted": 0}


def read(path: Path) -> list[BatchAt]:
    data = memoryview(path.read_bytes())
    return [(header, data[position : position + header.size_bytes]) for position, header in batches(data)]


@needs_oracle
@pytest.mark.parametrize("name", ["plain-4.3.1", "plain-4.4.0"])
@pytest.mark.parametrize("topic", DELETE_RETENTION_MS)
@pytest.mark.parametrize("clean_and_dirty", ["30 60 → 0.deleted", "0.deleted 90 → 0"])
def test_compaction_writes_the_same_bytes_as_kafka(name: str, topic: str, clean_and_dirty: str, tmp_path: Path) -> None:
    folder = unpack(name, tmp_path) / f"{topic}-0"

    def log(base: str) -> Path:
        offset, _, deleted = base.partition(".")
        name = f"{int(offset):020d}.log"
        return folder / (f"{name}.deleted" if deleted or not (folder / name).exists() else name)

    sources, _, target = clean_and_dirty.partition(" → ")
    clean, dirty = (read(log(base)) for base in sources.split())
    expected = log(target).read_bytes()
    end_offset = dirty[-1][0].next_offset
    horizon_ms = read_batch_header(expected).delete_horizon_ms
    assert horizon_ms is not None
    retention_ms = DELETE_RETENTION_MS[topic]

    keys = KeyMap(1 << 20)
    assert collect_keys(dirty, keys, PassTransactions(()), dirty[0][0].base_offset)
    rules = PassRules(
        end_offset=end_offset,
        now_ms=horizon_ms - retention_ms,
        delete_retention_ms=retention_ms,
        producers={PRODUCER: LastProducerBatch(0, end_offset - 1)},
    )
    record_filter = RecordFilter(keys, PassTransactions(()), rules)
    kept = [record_filter.filtered(header, batch) for header, batch in clean + dirty]
    assert b"".join(bytes(batch) for batch in kept if batch is not None) == expected
