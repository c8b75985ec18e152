"""Searches the files of `__share_group_state` for acknowledgements that are pending in transactions.

The search runs before the logs are opened, when a broker first starts on the directory of an older Odradek without
odradek.share.transactions (ADR 35).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from odradek.broker.shares.core.records import decode_record
from odradek.broker.shares.core.state import ShareSnapshot, ShareUpdate
from odradek.files.names import LOG, offset_file, offset_of, partition_directory
from odradek.protocol.errors import MalformedMessage
from odradek.protocol.records import records_of
from odradek.protocol.topic_partition import SHARE_GROUP_STATE
from odradek.storage.segment import Segment
from odradek.storage.segment_scan import whole_batches

if TYPE_CHECKING:
    from odradek.broker.runtime.slices import Steps
    from odradek.protocol.topic_partition import TopicPartition
    from odradek.storage.disk import Disk


def stores_pending(disk: Disk, path: str, partitions: Iterable[TopicPartition]) -> Steps[bool]:
    """Returns whether any record of share state contains pending or resolved acknowledgements, which Odradek stores in
    its own tagged fields.

    Reads each file up to its first incomplete batch, because recovery will remove the rest. Ignores records that cannot
    be decoded; the share coordinator reports them when it loads.

    path        the data directory
    partitions  the partitions that have a directory in the data directory
    """
    for topic, index in partitions:
        if topic != SHARE_GROUP_STATE:
            continue
        directory = f"{path}/{partition_directory(topic, index)}"
        for base_offset in _segments(disk, directory):
            size_bytes = disk.size(f"{directory}/{offset_file(base_offset, LOG)}")
            if not size_bytes:
                continue
            segment = Segment(disk, directory, base_offset, size_bytes=size_bytes, created_ms=0)
            try:
                for _, header, batch in whole_batches(segment, base_offset):
                    if not header.is_control and _has_pending(batch):
                        return True
                    yield
            finally:
                segment.close_file()
    return False


def _segments(disk: Disk, directory: str) -> list[int]:
    names = disk.list_directory(directory)
    offsets = {offset_of(name) for name in names if name.endswith(LOG)}
    return sorted(each for each in offsets if each is not None)


def _has_pending(batch: memoryview) -> bool:
    try:
        return any(_is_pending(record.key, record.value) for record in records_of(batch))
    except MalformedMessage:
        return False


def _is_pending(key: bytes | None, value: bytes | None) -> bool:
    try:
        record = decode_record(key, value)
    except MalformedMessage:
        return False
    if isinstance(record, ShareUpdate):
        return bool(record.pending or record.resolved)
    return isinstance(record, ShareSnapshot) and bool(record.pending)
