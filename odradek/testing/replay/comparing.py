"""Compares a live response with the recorded response to the same request, field by field.

Values that the protocol does not determine are not compared. These include times, addresses, the wording of error
messages, the order of lists whose elements have a key, and how many of the available records a Fetch returns. Ids may
differ too, but a recorded id must always correspond to the same live id.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from odradek.protocol.batch_header import batches
from odradek.protocol.errors import MalformedMessage
from odradek.protocol.records import records_of
from odradek.protocol.schema import Field, Schema, load
from odradek.protocol.struct import Message, Struct
from odradek.testing.replay.ids import KINDS, IdMap

OPEN: Final = frozenset(
    {
        *("ThrottleTimeMs", "LogAppendTimeMs", "TransactionStartTimeMs", "AcquisitionLockTimeoutMs"),  # times
        *("Host", "Port", "ClientHost", "Rack"),  # addresses
        *("FinalizedFeaturesEpoch",),  # an offset in the broker's own metadata log
        *("UsableBytes", "TotalBytes", "Size"),  # disk and replica sizes
    }
)
WORDS: Final = frozenset({"ErrorMessage", "BatchIndexErrorMessage"})
KEYS: Final = (
    *("Name", "Topic", "TopicName", "TopicId", "PartitionIndex", "Partition", "PartitionId", "GroupId", "Group"),
    *("MemberId", "NodeId", "BrokerId", "ApiKey", "Key", "TransactionalId", "ResourceType", "ResourceName", "Feature"),
    *("ProducerId", "FirstOffset", "Index"),
)
ERRORS: Final = frozenset({"ErrorCode", "PartitionErrorCode", "Error"})
Path = str


@dataclass(frozen=True, slots=True)
class Difference:
    """A difference between two responses. `path` consists of Kafka's field names in camelCase, without list indexes."""

    path: Path
    recorded: str
    live: str


@dataclass(slots=True)
class ComparedAnswers:
    """The result of comparing two responses. Each set contains one response's error codes."""

    differences: list[Difference]
    recorded_errors: set[int]
    live_errors: set[int]


def compare(recorded: Message, live: Message, version: int, ids: IdMap) -> ComparedAnswers:
    schema = load(type(recorded).__module__.rpartition(".")[2])
    found = ComparedAnswers([], errors_of(recorded, version), errors_of(live, version))
    found.differences += _struct(recorded, live, schema.fields, schema, version, ids, "")
    return found


def errors_of(message: Message, version: int) -> set[int]:
    """Returns all error codes in a response, including 0."""
    schema = load(type(message).__module__.rpartition(".")[2])
    return set(_errors(message, schema.fields, schema, version))


def _errors(struct: Struct, fields: tuple[Field, ...], schema: Schema, version: int) -> Iterator[int]:
    for field in fields:
        value = getattr(struct, field.attribute)
        if version not in field.versions or value is None:
            continue
        if field.is_struct:
            for each in value if field.is_array else [value]:
                yield from _errors(each, schema.structs[field.type], schema, version)
        elif field.name in ERRORS and isinstance(value, int):
            yield value


def _struct(
    recorded: Struct, live: Struct, fields: tuple[Field, ...], schema: Schema, version: int, ids: IdMap, above: Path
) -> Iterator[Difference]:
    for field in fields:
        if version not in field.versions or field.name in OPEN:
            continue
        path = f"{above}{field.name[0].lower()}{field.name[1:]}"
        one, other = getattr(recorded, field.attribute), getattr(live, field.attribute)
        if (one is None) != (other is None):
            if not (field.type == "records" and not (one or other)):  # null and an empty batch list are equivalent
                yield Difference(path, _shown(one), _shown(other))
        elif one is None:
            continue
        elif field.is_struct and field.is_array:
            yield from _lists(one, other, schema.structs[field.type], schema, version, ids, path)
        elif field.is_struct:
            yield from _struct(one, other, schema.structs[field.type], schema, version, ids, f"{path}.")
        elif field.type == "records":
            yield from _records(_joined(one), _joined(other), ids, path)
        else:
            yield from _plain(one, other, field, ids, path)


def _plain(one: Any, other: Any, field: Field, ids: IdMap, path: Path) -> Iterator[Difference]:
    kind = KINDS.get(field.name)
    if field.is_array:
        if kind is not None:
            one = [ids.live(kind, each) for each in one]
        if sorted(one) != sorted(other):
            yield Difference(path, _shown(one), _shown(other))
    elif kind is not None and not (kind == "member" and not isinstance(one, str)):
        if not ids.agree(kind, one, other):
            yield Difference(path, f"{_shown(one)}, which is {_shown(ids.live(kind, one))} here", _shown(other))
    elif field.name not in WORDS and one != other:
        yield Difference(path, _shown(one), _shown(other))


def _lists(
    one: list[Any], other: list[Any], fields: tuple[Field, ...], schema: Schema, version: int, ids: IdMap, path: Path
) -> Iterator[Difference]:
    keys = [field for field in fields if field.map_key and version in field.versions]
    keys = keys or [field for field in fields if field.name in KEYS and version in field.versions]
    if not keys:
        if len(one) != len(other):
            yield Difference(f"{path}.#", str(len(one)), str(len(other)))
        pairs = list(zip(one, other, strict=False))
    else:
        pairs = []
        waiting: dict[tuple[Any, ...], list[Any]] = {}
        for each in other:
            waiting.setdefault(tuple(getattr(each, key.attribute) for key in keys), []).append(each)
        alone = []
        for each in one:
            key = tuple(_live_key(getattr(each, field.attribute), field, ids) for field in keys)
            partners = waiting.get(key)
            if partners:
                pairs.append((each, partners.pop(0)))
            else:
                alone.append(each)
        rest = [each for partners in waiting.values() for each in partners]
        if any(key.name in KINDS for key in keys):  # ids without a known counterpart are paired in order
            while alone and rest:
                pairs.append((alone.pop(0), rest.pop(0)))
        for each in alone:
            yield Difference(f"{path}[]", _named(each, keys), "nothing")
        for each in rest:
            yield Difference(f"{path}[]", "nothing", _named(each, keys))
    for recorded, live in pairs:
        yield from _struct(recorded, live, fields, schema, version, ids, f"{path}[].")


def _live_key(value: Any, field: Field, ids: IdMap) -> Any:
    kind = KINDS.get(field.name)
    return value if kind is None else ids.live(kind, value)


def _named(each: Struct, keys: list[Field]) -> str:
    return ", ".join(f"{key.name} {_shown(getattr(each, key.attribute))}" for key in keys)


def _joined(records: Any) -> bytes:
    return b"".join(records) if isinstance(records, list) else bytes(records)


def _records(one: bytes, other: bytes, ids: IdMap, path: Path) -> Iterator[Difference]:
    """Compares the records of two responses. A different number of records is reported only if one of the responses
    contains no records."""
    try:
        recorded, live = _by_offset(one, ids), _by_offset(other, None)
    except MalformedMessage as error:
        yield Difference(path, "records", f"unreadable: {error}")
        return
    if bool(recorded) != bool(live):
        yield Difference(path, f"{len(recorded)} records", f"{len(live)} records")
    for offset in sorted(recorded.keys() & live.keys()):
        if recorded[offset] != live[offset]:
            yield Difference(path, f"at {offset} {recorded[offset]}", f"{live[offset]}")
            return


def _by_offset(data: bytes, ids: IdMap | None) -> dict[int, tuple[Any, ...]]:
    """Returns each record with its batch's producer fields, keyed by offset. Leaves out the timestamps that the broker
    sets, in markers and in topics with LogAppendTime."""
    found: dict[int, tuple[Any, ...]] = {}
    for position, header in batches(data):
        producer = header.producer_id if ids is None else ids.live("producer", header.producer_id)
        about = (producer, header.producer_epoch, header.is_transactional, header.is_control)
        for record in records_of(data, position):
            timestamp = 0 if header.is_log_append_time or header.is_control else record.timestamp
            value = None if header.is_control else record.value
            found[record.offset] = (*about, timestamp, record.key, value, record.headers)
    return found


def _shown(value: Any) -> str:
    if isinstance(value, bytes | memoryview):
        value = bytes(value).hex()
    text = str(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
