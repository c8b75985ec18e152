"""Reads the log of a `__share_group_state` partition as Kafka does, which skips markers and private tags."""

from odradek.broker.shares.core.records import decode_record
from odradek.broker.shares.core.state import SharePartitionKey, ShareSnapshot, ShareUpdate
from odradek.broker.shares.core.state_core import ShareCoordinatorConfig, StateCore
from odradek.protocol.records import batches, records_of
from odradek.storage.log import Log


def reported_batches(log: Log, key: SharePartitionKey) -> list[tuple[int, ...]]:
    """Returns (first offset, last offset, state, delivery count) for each range."""
    core = StateCore(ShareCoordinatorConfig(), lambda topic_id, index: True)
    for portion in log.reader.scan(log.log_start_offset, log.log_end_offset, checked=True):
        for position, header in batches(portion):
            for stored in () if header.is_control else records_of(portion, position):
                match decode_record(stored.key, stored.value):
                    case ShareSnapshot() as snapshot:
                        core.replay(snapshot._replace(pending=()), stored.offset, -1)
                    case ShareUpdate() as update:
                        core.replay(update._replace(pending=(), resolved=()), stored.offset, -1)
    state = core.read(key, 0, 0).response
    assert state is not None
    return [tuple(each) for each in state.batches]
