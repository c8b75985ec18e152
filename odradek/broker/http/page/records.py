"""The views of records: a list of a topic's records, and a single complete record, which is returned in pieces.

The list contains the records of all or some partitions in time order, with the start of each key and value. The work
for one request is bounded (`record_browsing`); the next request resumes at the position in `next`.

If the schema registry is on, a key or value whose bytes contain a schema id is also decoded. `key_schema` and
`value_schema` then name the schema, and contain the start of the JSON or the reason why the bytes cannot be decoded.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from odradek.broker.api.schema_values import DecodedContent, DecodingLimits, StoredContent
from odradek.broker.http.page.record_browsing import (
    ABORTED,
    COMMITTED,
    CONTROL,
    OPEN,
    PLAIN,
    BrowseResult,
    FoundRecord,
    RecordSource,
    browse,
)
from odradek.broker.http.page.record_decoding import KEY, VALUE, DecodedRecord, decoded_records, search
from odradek.broker.http.page.record_filter import RecordSelection, SearchedPart, json_path
from odradek.broker.runtime.workers import in_thread
from odradek.protocol.batch_header import batches
from odradek.protocol.decoded.internal_records import control_fields, fields_of, plain_fields
from odradek.protocol.decoded.messages import json_value
from odradek.protocol.errors import ErrorCode, KafkaError, MalformedMessage
from odradek.protocol.records import Record, records_of

if TYPE_CHECKING:
    from odradek.broker.http.page.served import Job, JsonValue, Query, SchemaDecoder, View, ViewedBroker
    from odradek.broker.partitions.partition import Partition
    from odradek.storage.log_reader import LogReader

SHOWN = 50
SHOWN_BYTES = 512  # longer keys, values and headers are truncated in the list, which then also contains their size
SHOWN_HEADERS = 20
MAX_PARTITIONS = 256  # maximum number of partitions in a list; a query can name other partitions
PIECE_BYTES = 256 * 1024
DECODED_ALONE = DecodingLimits(300_000, 32 << 20, values_each=300_000, characters_each=32 << 20)
STATES = frozenset({COMMITTED, OPEN, ABORTED, CONTROL, PLAIN})
NEWEST, OLDEST = "newest", "oldest"
HEADER = "header"


class LogPositions(NamedTuple):
    """A log's offsets at the time when the view was requested."""

    partition: int
    reader: LogReader
    log_start_offset: int
    last_stable_offset: int
    high_watermark: int
    open_ids: Mapping[int, int]


def records(served: ViewedBroker, query: Query) -> Job | Awaitable[View]:
    """Lists records of `topic`. Raises KafkaError.

    `partition`  numbers separated by commas; if missing, all partitions of the topic
    `order`      which records come first: `newest` or `oldest`. The default is `oldest` if `offset` or `timestamp` is
                 given, else `newest`
    `offset`, `timestamp`, `until`  the first offset, and the earliest and latest time in ms
    `state`      states separated by commas: plain, committed, aborted, open, control. `isolation=committed` selects the
                 states plain and committed, up to the last stable offset
    `find`, `in` a string, and where it must occur: `key`, `value`, `headers` or `any` of them
    `path`       a JSONPath that selects something in the value, see `record_filter`. If the schema registry is on, the
                 string and the path may also match the decoded key or value
    `at`         where to resume: `next` of the previous response, or `ends` for records appended later
    """
    topic = query["topic"]
    selection = record_selection_of(query)
    offset, is_committed = whole(query, "offset"), query.get("isolation") == COMMITTED
    default_order = NEWEST if offset is None and selection.since is None else OLDEST
    order = one_of(query, "order", (NEWEST, OLDEST), default_order)
    resumed = resumed_at(query.get("at", ""))
    chosen, left_out = chosen_partitions(served, topic, query)
    positions = [positions_of(each) for each in chosen]

    def sources() -> list[RecordSource]:
        found = []
        for each in positions:
            end = each.last_stable_offset if is_committed else each.high_watermark
            start = min(max(offset or 0, each.log_start_offset), end)
            if selection.since is not None:
                since = each.reader.offset_for_timestamp(selection.since)
                start = max(start, end if since is None else min(since.offset, end))
            at = resumed.get(each.partition)
            if at is not None and order == NEWEST:
                end = min(max(at, start), end)
            elif at is not None:
                start = min(max(at, start), end)
            found.append(RecordSource(each.partition, each.reader, start, end, each.open_ids))
        return found

    def look() -> BrowseResult:
        return browse(sources(), selection, newest_first=order == NEWEST, most=SHOWN)

    def shown_view(browsed: BrowseResult, rows: Sequence[JsonValue]) -> View:
        return {
            "topic": topic,
            "partitions": [
                {
                    "partition": each.partition,
                    "log_start_offset": each.log_start_offset,
                    "last_stable_offset": each.last_stable_offset,
                    "high_watermark": each.high_watermark,
                }
                for each in positions
            ],
            "partitions_left_out": left_out,
            "order": order,
            "records": rows,
            "looked_at": browsed.looked_at,
            "next": resuming(browsed.positions),
            "is_done": browsed.is_done,
            "ends": resuming({each.partition: each.high_watermark for each in positions}),
        }

    def job() -> View:
        browsed = look()
        return shown_view(browsed, [row(topic, each) for each in browsed.records])

    async def with_schemas(decoder: SchemaDecoder) -> View:
        workers = served.broker.workers
        if selection.looks_into_contents:
            browsed, found = await search(
                workers, decoder, topic, sources, selection, newest_first=order == NEWEST, most=SHOWN
            )
        else:
            browsed = await in_thread(workers, look)
            found = await decoded_records(decoder, topic, browsed.records)
        return shown_view(browsed, await in_thread(workers, lambda: [decoded_row(topic, each) for each in found]))

    if served.decoder is None or fields_of(topic) is not plain_fields:
        return job
    return with_schemas(served.decoder)


def decoded_row(topic: str, decoded: DecodedRecord) -> dict[str, JsonValue]:
    """Returns a list row with the key and value as decoded by the schema registry."""
    fields = row(topic, decoded.found)
    for part, content in ((KEY, decoded.key), (VALUE, decoded.value)):
        if content is not None:
            fields[f"{part}_schema"] = shown_schema(content)
    return fields


def shown_schema(content: DecodedContent) -> Mapping[str, JsonValue]:
    """Returns the id, type, subject and version of a schema, with the start of the decoded JSON or the reason why there
    is no JSON."""
    fields: dict[str, JsonValue] = {"id": content.schema_id}
    if content.kind is not None:
        fields |= {"type": content.kind, "subject": content.subject, "version": content.version}
    if content.json is None:
        return fields | {"error": content.error, "is_large": content.is_large}
    fields["text"] = content.json[:SHOWN_BYTES]
    if len(content.json) > SHOWN_BYTES:
        fields["size"] = len(content.json.encode())
    return fields


def record_selection_of(query: Query) -> RecordSelection:
    states = frozenset(filter(None, query.get("state", "").split(",")))
    if not states <= STATES:
        raise invalid(f"state must be one of {', '.join(sorted(STATES))}, or several separated by commas")
    if query.get("isolation") == COMMITTED:
        states = frozenset({PLAIN, COMMITTED})
    path = query.get("path", "").strip()
    return RecordSelection(
        query.get("find", "").encode(errors="surrogateescape"),
        SearchedPart(one_of(query, "in", [each.value for each in SearchedPart], SearchedPart.ANY.value)),
        json_path(path) if path else None,
        whole(query, "timestamp"),
        whole(query, "until"),
        states,
    )


def one_of(query: Query, name: str, values: Sequence[str], default: str) -> str:
    found = query.get(name) or default
    if found not in values:
        raise invalid(f"{name} must be one of {', '.join(values)}")
    return found


def whole(query: Query, name: str) -> int | None:
    """Returns an integer parameter, or None if it is missing or empty. Raises KafkaError if it is not an integer."""
    text = query.get(name)
    if not text:
        return None
    if not text.removeprefix("-").isdecimal() or len(text) > 20:
        raise invalid(f"{name} must be a whole number")
    return int(text)


def resumed_at(text: str) -> Mapping[int, int]:
    try:
        pairs = (each.split(":") for each in text.split(",") if each)
        return {int(partition): int(offset) for partition, offset in pairs}
    except ValueError:
        raise invalid("at must be the value of the field next or ends of an earlier answer") from None


def resuming(positions: Mapping[int, int]) -> str:
    return ",".join(f"{partition}:{offset}" for partition, offset in positions.items())


def invalid(words: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, f"{words[0].upper()}{words[1:]}.")


def chosen_partitions(served: ViewedBroker, topic: str, query: Query) -> tuple[list[Partition], int]:
    """Returns the partitions to read: the partitions that the query names, or else all partitions of the topic. Also
    returns the number of partitions omitted because of MAX_PARTITIONS."""
    partitions = served.broker.partitions
    if query.get("partition"):
        names = query["partition"].split(",")
        if not all(each.isdecimal() and len(each) < 10 for each in names):
            raise invalid("partition must be a whole number, or several separated by commas")
        chosen = [partitions.get(topic, index) for index in sorted(set(map(int, names[: MAX_PARTITIONS + 1])))]
    else:
        chosen = sorted(partitions.of_topic(topic), key=lambda each: each.index)
        if not chosen:
            partitions.get(topic, 0)  # raises KafkaError if the topic does not exist
    return chosen[:MAX_PARTITIONS], max(0, len(chosen) - MAX_PARTITIONS)


def positions_of(partition: Partition) -> LogPositions:
    log = partition.log
    open_ids = {
        each.producer_id: each.current_txn_first_offset
        for each in log.producers()
        if each.current_txn_first_offset is not None
    }
    return LogPositions(
        partition.index, log.reader, log.log_start_offset, log.last_stable_offset, log.high_watermark, open_ids
    )


def row(topic: str, found: FoundRecord) -> dict[str, JsonValue]:
    header, record = found.header, found.record
    fields: dict[str, JsonValue] = {
        "partition": found.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "status": found.state,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "compression": header.compression.name.lower(),
        "headers": [[name, value_view(value)] for name, value in record.headers[:SHOWN_HEADERS]],
        "header_count": len(record.headers),
    }
    try:
        decoded = control_fields(record) if header.is_control else fields_of(topic)(record)
    except MalformedMessage as error:
        decoded = {"key": record.key, "value": record.value, "damage": str(error)}
    for name, value in decoded.items():
        fields[name] = (
            value_view(value)
            if value is None or isinstance(value, bytes)
            else json.loads(json.dumps(value, default=json_value))
        )
    return fields


def value_view(data: bytes | None) -> JsonValue:
    """Returns bytes as text if they are UTF-8, otherwise as hexadecimal digits. Adds their size if they are
    truncated."""
    if data is None:
        return None
    part = data[:SHOWN_BYTES]
    try:
        text: dict[str, JsonValue] = {"text": part.decode()}
    except UnicodeDecodeError as error:
        cut = len(data) > SHOWN_BYTES and error.start > len(part) - 4  # truncation has split a character
        text = {"text": part[: error.start].decode()} if cut else {"hex": part.hex(" ")}
    if len(data) > SHOWN_BYTES:
        text["size"] = len(data)
    return text


def record(served: ViewedBroker, query: Query) -> Job | Awaitable[View]:
    """Shows the record at `topic`, `partition` and `offset`, with its complete headers and a piece of its key or value.

    `of`       `value` (default), `key`, or `header:N` with the number of the header
    `from`     position of the first byte of the piece. `next` is the position of the following piece, or None at the
               end
    `decoded`  `true` for the JSON of the key or value, decoded by the schema registry
    """
    part = content_at(served, query)
    start = max(0, whole(query, "from") or 0)

    def view(found: Record, data: bytes | None) -> View:
        return {
            "topic": query["topic"],
            "offset": found.offset,
            "timestamp": found.timestamp,
            "headers": [name for name, _ in found.headers],
            "size": None if data is None else len(data),
            **piece(data, start),
        }

    async def decoded_view() -> View:
        found, data = await in_thread(served.broker.workers, part)
        return view(found, (await decoded_json(served, query, data)).encode())

    return decoded_view() if is_decoded(query) else lambda: view(*part())


def is_decoded(query: Query) -> bool:
    return one_of(query, "decoded", ("true", "false"), "false") == "true"


async def decoded_json(served: ViewedBroker, query: Query, data: bytes | None) -> str:
    """Returns the JSON of a key or value that `content_at` has read. Raises KafkaError with the reason if the key or
    value cannot be decoded."""
    part = query.get("of") or VALUE
    if served.decoder is None:
        raise invalid("the schema registry is off: set odradek.schema.registry.enable=true")
    if part not in (KEY, VALUE) or data is None:
        raise invalid("only keys and values that are not null can be decoded")
    (found,) = await served.decoder.decode(query["topic"], [StoredContent(part, data)], DECODED_ALONE)
    if found is None:
        raise invalid(f"the bytes of the {part} do not name a schema")
    if found.json is None:
        raise invalid(f"the {part} cannot be decoded by schema {found.schema_id}: {found.error}")
    return found.json


def piece(data: bytes | None, start: int) -> Mapping[str, JsonValue]:
    """Returns a piece of a key, value or header as text if the piece is UTF-8, otherwise as hexadecimal digits. If the
    piece would end within a character, it ends before that character."""
    if data is None:
        return {"from": 0, "next": None, "text": None}
    part = data[start : start + PIECE_BYTES]
    after: int = start + len(part)
    try:
        text = part.decode()
    except UnicodeDecodeError as error:
        if after >= len(data) or error.start <= len(part) - 4:
            return {"from": start, "next": after if after < len(data) else None, "hex": part.hex(" ")}
        after = start + error.start
        text = part[: error.start].decode()
    return {"from": start, "next": after if after < len(data) else None, "text": text}


def content_at(served: ViewedBroker, query: Query) -> Callable[[], tuple[Record, bytes | None]]:
    """Returns a job that reads one record. The job returns the record, and the key, value or header that the query
    names.

    Both this function and the job raise KafkaError; its code is OFFSET_OUT_OF_RANGE if the record or header does not
    exist. This function raises KeyError if a parameter is missing.
    """
    partition = served.broker.partitions.get(query["topic"], whole(query, "partition") or 0)
    offset, of = whole(query, "offset"), query.get("of") or VALUE
    kind, _, number = of.partition(":")
    if offset is None:
        raise KeyError("offset")
    if kind not in (KEY, VALUE, HEADER) or (kind == HEADER) != number.isdecimal() or len(number) > 9:
        raise invalid("of must be value, key or header:N")
    reader = partition.log.reader

    def job() -> tuple[Record, bytes | None]:
        found = record_at(reader, offset)
        if kind != HEADER:
            return found, found.key if kind == KEY else found.value
        if int(number) >= len(found.headers):
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"The record has no header {number}.")
        return found, found.headers[int(number)][1]

    return job


def record_at(reader: LogReader, offset: int) -> Record:
    data = b"".join(reader.read_cold(offset, max_bytes=1).chunks)
    for position, header in batches(data):
        try:
            for each in records_of(data, position) if header.base_offset <= offset <= header.last_offset else ():
                if each.offset == offset:
                    return each
        except MalformedMessage as error:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"The batch is damaged: {error}.") from None
    raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"There is no record at offset {offset}.")
