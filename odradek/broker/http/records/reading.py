"""Reads records for an HTTP client from given positions and waits for more records.

`record_browsing` bounds the work for one read, and MAX_BYTES the size of one response. Appended records wake a waiting
reader in the same way as a consumer's Fetch request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from odradek.broker.api.schema_values import DecodedContent, DecodingLimits, StoredContent
from odradek.broker.fetch.wait import FetchWait
from odradek.broker.http.page.record_browsing import (
    ABORTED,
    COMMITTED,
    OPEN,
    PLAIN,
    FoundRecord,
    RecordSource,
    browse,
)
from odradek.broker.http.page.record_filter import RecordSelection
from odradek.broker.http.page.record_grammar import invalid, record_json
from odradek.broker.http.page.records import (
    LogPositions,
    chosen_partitions,
    one_of,
    positions_of,
    record_selection_of,
    resumed_at,
    resuming,
    whole,
)
from odradek.broker.runtime.workers import in_thread

if TYPE_CHECKING:
    from odradek.broker.http.page.served import Query, ViewedBroker

MAX_RECORDS: Final = 1000
DEFAULT_RECORDS: Final = 100
# Maximum size of the keys, values and headers in a response. A larger record is sent alone.
MAX_BYTES: Final = 4 * 1024 * 1024
MAX_WAIT_MS: Final = 60_000
MAX_READERS: Final = 64
DECODING_LIMITS: Final = DecodingLimits(100_000, 8 << 20, values_each=100_000, characters_each=8 << 20)
# Maps the formats of `key_format` and `value_format` to the schema type that each format requires. The format "schema"
# accepts all types.
FORMATS: Final[Mapping[str, str | None]] = {
    "avro": "AVRO",
    "json-schema": "JSON",
    "protobuf": "PROTOBUF",
    "schema": None,
}
PARTS: Final = ("key", "value")
BEGINNING, END = "beginning", "end"
UNCOMMITTED: Final = "uncommitted"


class TooManyReaders(Exception):
    """Raised if MAX_READERS requests are already reading."""


class ReaderLimit:
    """Limits the number of simultaneous reads, so that they cannot use up the HTTP port's connections."""

    def __init__(self) -> None:
        self.count = 0

    @contextmanager
    def place(self) -> Iterator[None]:
        """Counts one reader while the context is active. Raises TooManyReaders if the limit has been reached."""
        if self.count >= MAX_READERS:
            raise TooManyReaders
        self.count += 1
        try:
            yield
        finally:
            self.count -= 1


@dataclass(frozen=True, slots=True)
class ReadQuery:
    """The parameters of a request that reads records.

    start    offset to start from, by partition. All other partitions start from `default_start`: an offset, `end` or
             `beginning`
    most     maximum number of records in one response
    formats  format in which the schema registry decodes the `key` and the `value`. A part without a format is not
             decoded
    """

    topic: str
    query: Query
    start: Mapping[int, int]
    default_start: str | int
    selection: RecordSelection
    is_committed: bool
    most: int
    wait_ms: int
    formats: Mapping[str, str]


def parse_query(topic: str, query: Query, last_event_id: str = "") -> ReadQuery:
    """Parses the parameters of a read. Raises KafkaError (INVALID_REQUEST) if a parameter is invalid.

    last_event_id  the Last-Event-ID header, which browsers send to resume; it replaces the parameter `from`
    """
    given = last_event_id or query.get("from") or BEGINNING
    start: Mapping[int, int] = {}
    default: str | int = BEGINNING
    if given in (BEGINNING, END):
        default = given
    elif given.isdecimal() and len(given) < 20:
        default = int(given)
    elif ":" in given:
        start = resumed_at(given)
    else:
        raise invalid("from must be beginning, end, an offset, or `next` of an earlier answer")
    isolation = one_of(query, "isolation", (COMMITTED, UNCOMMITTED), COMMITTED)
    selection = record_selection_of({**query, "isolation": "", "state": ""})
    states = {PLAIN, COMMITTED} if isolation == COMMITTED else {PLAIN, COMMITTED, OPEN, ABORTED}
    return ReadQuery(
        topic,
        query,
        start,
        default,
        replace(selection, states=frozenset(states)),
        isolation == COMMITTED,
        _bounded(query, "max", 1, MAX_RECORDS, DEFAULT_RECORDS),
        _bounded(query, "wait_ms", 0, MAX_WAIT_MS, 0),
        {part: one_of(query, f"{part}_format", tuple(FORMATS), "") for part in PARTS if query.get(f"{part}_format")},
    )


def _bounded(query: Query, name: str, least: int, most: int, default: int) -> int:
    found = whole(query, name)
    if found is not None and not least <= found <= most:
        raise invalid(f"{name} must be from {least} to {most}")
    return default if found is None else found


class RecordReader:
    """Reads successive batches of records for one request. `next` is the position at which to resume."""

    def __init__(self, served: ViewedBroker, query: ReadQuery) -> None:
        """Raises KafkaError if the topic or a partition does not exist, or if the query requests decoding and the
        schema registry is off."""
        if query.formats and served.decoder is None:
            raise invalid("the schema registry is off: set odradek.schema.registry.enable=true")
        self._served = served
        self._query = query
        self._positions: dict[int, int] = {}
        for each in self._logs():
            end = self._end(each)
            default = {BEGINNING: each.log_start_offset, END: end}
            start = query.default_start
            at = query.start.get(each.partition, default[start] if isinstance(start, str) else start)
            self._positions[each.partition] = min(max(at, each.log_start_offset), end)

    @property
    def next(self) -> str:
        return resuming(self._positions)

    @property
    def is_at_end(self) -> bool:
        """True if all available records have been examined. Raises KafkaError if the topic has been deleted."""
        return all(self._positions[each.partition] >= self._end(each) for each in self._logs())

    async def read(self) -> list[str]:
        """Returns the JSON of the next records. Raises KafkaError, for example if the topic has been deleted.

        Each call examines a bounded part of the log. If the query has a filter, a call may return no records before the
        end is reached.
        """
        return [] if self.is_at_end else await self._read_batch()

    async def wait(self, wait_ms: int) -> None:
        """Waits until a record is appended, but at most `wait_ms`. Returns immediately if there are records that have
        not been examined."""
        if not self.is_at_end:
            return
        woken = asyncio.Event()
        partitions, _ = chosen_partitions(self._served, self._query.topic, self._query.query)
        wait = FetchWait(
            partitions,
            missing_bytes=1,
            max_wait_ms=wait_ms,
            timers=self._served.broker.timers,
            look=woken.set,
            time_is_over=woken.set,
        )
        try:
            await woken.wait()
        finally:
            wait.end()

    async def _read_batch(self) -> list[str]:
        logs = self._logs()
        query = self._query
        starts = {each.partition: max(self._positions[each.partition], each.log_start_offset) for each in logs}

        def job() -> tuple[Sequence[FoundRecord], list[str], dict[int, int]]:
            sources = []
            for each in logs:
                start, end = starts[each.partition], self._end(each)
                if query.selection.since is not None:
                    since = each.reader.offset_for_timestamp(query.selection.since)
                    start = max(start, end if since is None else min(since.offset, end))
                sources.append(RecordSource(each.partition, each.reader, start, end, each.open_ids))
            browsed = browse(sources, query.selection, newest_first=False, most=query.most)
            fitting = within_bytes(browsed.records)
            positions = dict(browsed.positions)
            move_before(positions, browsed.records[len(fitting) :])
            texts = [] if query.formats else [record_json(each.partition, each.record) for each in fitting]
            return fitting, texts, positions

        workers = self._served.broker.workers
        found, texts, positions = await in_thread(workers, job)
        if query.formats and found:
            decoded = await self._decoded(found)
            move_before(positions, found[len(decoded) :])
            texts = await in_thread(
                workers,
                lambda: [
                    record_json(each.partition, each.record, parts)
                    for each, parts in zip(found[: len(decoded)], decoded, strict=True)
                ],
            )
        self._positions.update(positions)
        return texts

    async def _decoded(self, found: Sequence[FoundRecord]) -> list[dict[str, DecodedContent | str]]:
        """Decodes the keys and values of the first records: as many records as DECODING_LIMITS allows, but at least
        one. Returns the decoded parts of each of these records."""
        decoder, formats = self._served.decoder, self._query.formats
        assert decoder is not None
        places: list[tuple[int, str]] = []
        contents: list[StoredContent] = []
        for number, each in enumerate(found):
            for part, data in (("key", each.record.key), ("value", each.record.value)):
                if part in formats and data is not None:
                    places.append((number, part))
                    contents.append(StoredContent(part, data))
        parts: list[dict[str, DecodedContent | str]] = [{} for _ in found]
        decoded = await decoder.decode(self._query.topic, contents, DECODING_LIMITS)
        for (number, part), content in zip(places, decoded, strict=True):
            if content is not None and content.is_large and number:
                return parts[:number]
            parts[number][part] = in_format(content, part, formats[part])
        return parts

    def _logs(self) -> list[LogPositions]:
        chosen, left_out = chosen_partitions(self._served, self._query.topic, self._query.query)
        if left_out:
            raise invalid(f"the parameter partition must name at most {len(chosen)} partitions")
        found = [positions_of(each) for each in chosen]
        for each in found:
            # A partition that was created in the meantime is read from its beginning.
            self._positions.setdefault(each.partition, each.log_start_offset)
        return found

    def _end(self, log: LogPositions) -> int:
        return log.last_stable_offset if self._query.is_committed else log.high_watermark


def within_bytes(found: Sequence[FoundRecord]) -> Sequence[FoundRecord]:
    """Returns as many of the first records as fit in MAX_BYTES, but at least one."""
    size = 0
    for number, each in enumerate(found):
        record = each.record
        size += len(record.key or b"") + len(record.value or b"")
        size += sum(len(name) + len(value or b"") for name, value in record.headers)
        if size > MAX_BYTES and number:
            return found[:number]
    return found


def move_before(positions: dict[int, int], left: Sequence[FoundRecord]) -> None:
    """Moves positions back to the first record of each partition that a response omits, so that the next response
    begins with that record."""
    for each in reversed(left):
        positions[each.partition] = each.record.offset


def in_format(content: DecodedContent | None, part: str, format_name: str) -> DecodedContent | str:
    """Returns a decoded key or value, or the reason why it does not have the format."""
    if content is None:
        return "its bytes do not begin with a zero byte and the id of a schema"
    kind = FORMATS[format_name]
    if kind is None or content.kind in (None, kind):
        return content
    right = next(name for name, each in FORMATS.items() if each == content.kind)
    return f"the schema {content.schema_id} is {content.kind}, not {kind}: use {part}_format={right}"
