"""Known bug 56: Kafka writes a transactional batch whose producer id is -1. No marker can ever end its transaction."""

import pytest

from odradek.protocol.errors import ErrorCode
from odradek.storage.log_config import LogConfig
from odradek.storage.validation import BatchRules, RefusedRecords, check_produced
from tests.support.batches import NOW_MS, changed, good_batch

TRANSACTIONAL = 0x10


def test_known_bug_56_a_transactional_batch_without_a_producer_id_is_refused() -> None:
    rules = BatchRules.of("t", 0, LogConfig())
    batch = changed(good_batch(), attributes=TRANSACTIONAL)
    with pytest.raises(RefusedRecords) as refused:
        check_produced(batch, rules, NOW_MS, 9)
    assert refused.value.code is ErrorCode.INVALID_RECORD
    with_producer = changed(batch, producer_id=5, producer_epoch=0, base_sequence=0)
    assert check_produced(with_producer, rules, NOW_MS, 9).header.is_transactional
