"""Decodes the keys and values in the list of records with the schema registry and searches in their JSON.

A search reads records within the same limits as a list without a search (`record_browsing`). It decodes at most
MAX_CANDIDATES records, and stops when it has decoded MAX_CHARACTERS of JSON. If candidates are left, the next request
resumes directly after the last record that was examined.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from odradek.broker.api.schema_values import DecodedContent, DecodingLimits, StoredContent
from odradek.broker.http.page.record_browsing import BrowseResult, FoundRecord, RecordSource, browse
from odradek.broker.runtime.workers import in_thread

if TYPE_CHECKING:
    from odradek.broker.http.page.record_filter import RecordSelection
    from odradek.broker.http.page.served import SchemaDecoder
    from odradek.broker.runtime.workers import Workers

KEY, VALUE = "key", "value"
DECODED_IN_A_LIST: Final = DecodingLimits(100_000, 4 << 20, values_each=2_000, characters_each=64 << 10)
MAX_CANDIDATES: Final = 1_000
MAX_CHARACTERS: Final = 4 << 20
# Number of records to decode in one call. Even if each of their keys and values reaches its own limit, their total
# stays within the limits of DECODED_IN_A_LIST.
DECODED_AT_ONCE: Final = 25


class DecodedRecord(NamedTuple):
    """A record with its decoded key and value. The key or value is None if its bytes do not contain a schema id."""

    found: FoundRecord
    key: DecodedContent | None = None
    value: DecodedContent | None = None

    def matches(self, selection: RecordSelection) -> bool:
        return selection.matches_decoded(self.found.record, json_of(self.key), json_of(self.value))

    @property
    def characters(self) -> int:
        """The length of the decoded JSON, which is a measure of the decoding work. A key or value that is too large
        counts as if it had the maximum length."""
        contents = [each for each in (self.key, self.value) if each is not None]
        most = DECODED_IN_A_LIST.characters_each
        return sum(most if each.is_large else len(each.json or "") for each in contents)


def json_of(content: DecodedContent | None) -> str | None:
    return None if content is None else content.json


async def decoded_records(decoder: SchemaDecoder, topic: str, found: Sequence[FoundRecord]) -> list[DecodedRecord]:
    """Decodes the keys and values of a topic's records."""
    places: list[tuple[int, str]] = []
    contents: list[StoredContent] = []
    for number, each in enumerate(found):
        for part, data in ((KEY, each.record.key), (VALUE, each.record.value)):
            if data is not None and not each.header.is_control:
                places.append((number, part))
                contents.append(StoredContent(part, data))
    decoded = dict(zip(places, await decoder.decode(topic, contents, DECODED_IN_A_LIST), strict=True))
    return [
        DecodedRecord(each, decoded.get((number, KEY)), decoded.get((number, VALUE)))
        for number, each in enumerate(found)
    ]


async def search(
    workers: Workers,
    decoder: SchemaDecoder,
    topic: str,
    sources_of: Callable[[], Sequence[RecordSource]],
    selection: RecordSelection,
    *,
    newest_first: bool,
    most: int,
) -> tuple[BrowseResult, list[DecodedRecord]]:
    """Finds records whose stored bytes or decoded JSON match. Returns the positions that the search has reached, and at
    most `most` records. Raises KafkaError.

    sources_of  returns the parts of partitions to read; called in a thread, since it reads files
    """

    def job() -> tuple[Sequence[RecordSource], BrowseResult]:
        sources = sources_of()
        candidates = replace(selection, is_decoded=True)
        return sources, browse(sources, candidates, newest_first=newest_first, most=MAX_CANDIDATES)

    sources, browsed = await in_thread(workers, job)
    kept: list[DecodedRecord] = []
    examined, left = 0, MAX_CHARACTERS
    while examined < len(browsed.records) and len(kept) < most and left > 0:
        some = await decoded_records(decoder, topic, browsed.records[examined : examined + DECODED_AT_ONCE])
        matching = await in_thread(workers, partial(matches_of, some, selection))
        for each, is_matching in zip(some, matching, strict=True):
            examined += 1
            left -= each.characters
            if is_matching:
                kept.append(each)
                if len(kept) == most:
                    break
    return cut_after(browsed, examined, sources, newest_first=newest_first), kept


def matches_of(records: Sequence[DecodedRecord], selection: RecordSelection) -> list[bool]:
    return [each.matches(selection) for each in records]


def cut_after(
    browsed: BrowseResult, examined: int, sources: Sequence[RecordSource], *, newest_first: bool
) -> BrowseResult:
    """Returns the result as if browsing had stopped after the first `examined` records."""
    if examined == len(browsed.records):
        return browsed
    positions = dict(browsed.positions)
    unexamined = {each.partition for each in browsed.records[examined:]}
    for source in sources:
        if source.partition in unexamined:
            positions[source.partition] = source.end if newest_first else source.start
    for each in browsed.records[:examined]:
        if each.partition in unexamined:
            offset = each.record.offset
            positions[each.partition] = offset if newest_first else offset + 1
    return browsed._replace(positions=positions, looked_at=examined, is_done=False)
