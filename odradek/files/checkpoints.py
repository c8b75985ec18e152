"""Encodes and decodes Kafka's small text files: offsets per partition, leader epochs, a partition's topic id, a data
directory's ids, and the mark of a clean shutdown. Does no I/O. Layouts: docs/formats/checkpoints.md.

An empty checkpoint file has no entries. Kafka creates the file before it first writes to it.
"""

import base64
import itertools
import json
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from odradek.protocol.topic_partition import TopicPartition

_VERSION = "0"
_META_VERSION = "1"


class CorruptCheckpoint(Exception):
    """The file's content cannot have been written by Kafka or Odradek."""


class MetaProperties(NamedTuple):
    """Identifies the owner of a data directory. Ids are in Kafka's text form."""

    node_id: int
    cluster_id: str
    directory_id: str | None  # None if the file was written by Kafka before 3.7


def _rows(data: bytes) -> list[list[str]]:
    """Returns the rows of a checkpoint, each split at spaces, without the version and the count at the beginning."""
    if not data:
        return []
    try:
        version, count, *rows = data.decode("utf-8").splitlines()
    except ValueError:
        raise CorruptCheckpoint("the version and the count are missing") from None
    if version != _VERSION:
        raise CorruptCheckpoint(f"unknown version {version}")
    if not count.isdigit() or int(count) != len(rows):
        raise CorruptCheckpoint(f"the file has {len(rows)} rows, but its header says {count}")
    return [row.split(" ") for row in rows]


def _text(rows: Iterable[str]) -> bytes:
    rows = list(rows)
    return "".join(f"{line}\n" for line in (_VERSION, len(rows), *rows)).encode()


def decode_offsets(data: bytes) -> dict[TopicPartition, int]:
    """Returns the offset of each partition in an offset checkpoint. Raises CorruptCheckpoint."""
    try:
        return {(topic, int(partition)): int(offset) for topic, partition, offset in _rows(data)}
    except ValueError as error:
        raise CorruptCheckpoint(str(error)) from None


def encode_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    return _text(f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items())


def decode_epochs(data: bytes) -> list[tuple[int, int]]:
    """Returns the leader epochs with their first offsets, both in ascending order. Raises CorruptCheckpoint."""
    try:
        entries = [(int(epoch), int(start)) for epoch, start in _rows(data)]
    except ValueError as error:
        raise CorruptCheckpoint(str(error)) from None
    for (epoch, start), (next_epoch, next_start) in itertools.pairwise(entries):
        if next_epoch <= epoch or next_start < start:
            raise CorruptCheckpoint("the leader epochs are not in ascending order")
    return entries


def encode_epochs(entries: Iterable[tuple[int, int]]) -> bytes:
    return _text(f"{epoch} {start}" for epoch, start in entries)


def topic_id_text(topic_id: bytes) -> str:
    """Returns Kafka's text form of a 16-byte id, which is URL-safe base64 without padding."""
    return base64.urlsafe_b64encode(topic_id).decode().rstrip("=")


def topic_id_bytes(text: str) -> bytes:
    try:
        topic_id = base64.urlsafe_b64decode(text + "==")
    except ValueError:
        raise CorruptCheckpoint(f"{text!r} is not a valid id") from None
    if len(topic_id) != 16:
        raise CorruptCheckpoint(f"{text!r} is not a valid id")
    return topic_id


def decode_partition_metadata(data: bytes) -> bytes:
    """Returns the topic id in a partition.metadata file. Raises CorruptCheckpoint, for example if the file is empty."""
    fields = dict(line.partition(": ")[::2] for line in data.decode("utf-8", "replace").splitlines())
    if fields.get("version") != _VERSION or "topic_id" not in fields:
        raise CorruptCheckpoint("partition.metadata lacks version 0 or a topic id")
    return topic_id_bytes(fields["topic_id"])


def encode_partition_metadata(topic_id: bytes) -> bytes:
    return f"version: 0\ntopic_id: {topic_id_text(topic_id)}".encode()


def decode_meta_properties(data: bytes) -> MetaProperties:
    """Decodes meta.properties. Raises CorruptCheckpoint."""
    lines = (line.strip() for line in data.decode("utf-8", "replace").splitlines())
    rows = (line.partition("=")[::2] for line in lines if line and not line.startswith(("#", "!")))
    fields = {name: value.replace("\\", "") for name, value in rows}  # Java escapes = and : in values
    if fields.get("version") != _META_VERSION:
        raise CorruptCheckpoint(f"meta.properties has the unsupported version {fields.get('version')}")
    try:
        return MetaProperties(int(fields["node.id"]), fields["cluster.id"], fields.get("directory.id"))
    except (KeyError, ValueError) as error:
        raise CorruptCheckpoint(f"meta.properties: {error}") from None


def encode_meta_properties(meta: MetaProperties) -> bytes:
    lines = [f"node.id={meta.node_id}", f"version={_META_VERSION}", f"cluster.id={meta.cluster_id}"]
    if meta.directory_id is not None:
        lines.append(f"directory.id={meta.directory_id}")
    return "".join(f"{line}\n" for line in lines).encode()


def encode_clean_shutdown(broker_epoch: int) -> bytes:
    return json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":")).encode()


def decode_clean_shutdown(data: bytes) -> int | None:
    """Returns the broker epoch of the process that shut down. Returns None if the file has no epoch, as in older Kafka
    releases."""
    try:
        fields = json.loads(data)
        epoch = fields["brokerEpoch"]
    except (ValueError, KeyError, TypeError):
        return None
    return epoch if isinstance(epoch, int) else None
