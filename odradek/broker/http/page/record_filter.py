"""Selects the records to show in the records view: by text, by a JSONPath in the value, by time and by state.

A JSONPath is `$` with steps `.name`, `['name']`, `[0]`, `[-1]`, `[*]`, `.*` and at most one `..name`, and optionally a
comparison, as in `$.order.lines[*].amount == 10.00`. Numbers are compared as they are written, so `10.00` and `10`
differ, and large integers keep all their digits. Source: RFC 9535, 2.3 and 2.5, for the steps.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, TypeAlias

from odradek.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from odradek.protocol.records import Record


class SearchedPart(Enum):
    """The part of a record to search for a string."""

    ANY = "any"
    KEY = "key"
    VALUE = "value"
    HEADERS = "headers"


class JsonNumber(str):
    """A JSON number exactly as it is written."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class JsonMembers:
    """The members of a JSON object. Names may occur more than once."""

    pairs: list[tuple[str, Parsed]]


Parsed: TypeAlias = "JsonMembers | list[Parsed] | JsonNumber | str | bool | None"
PathStep: TypeAlias = "str | int | None"  # the name of a member, the index of an element, or None for all children
MAX_STEPS = 20
SCHEMA_ID_BYTES = 5  # a zero byte and the schema id


@dataclass(frozen=True, slots=True)
class JsonPath:
    """A path that selects values in a JSON document, optionally with an expected value.

    deep         number of the step that follows `..`, or None if the path has no `..`
    expected     the JSON value that one of the selected values must equal
    is_compared  whether there is an expected value
    """

    steps: Sequence[PathStep]
    deep: int | None
    expected: Parsed
    is_compared: bool

    def matches(self, data: bytes) -> bool:
        """Returns whether the path selects a value in a JSON text. If there is an expected value, one of the selected
        values must equal it. Returns False if `data` is not JSON."""
        try:
            found = [parsed(data.decode())]
        except (ValueError, RecursionError):
            return False
        for number, step in enumerate(self.steps):
            if number == self.deep:
                found = [each for top in found for each in below(top)]
            found = [each for parent in found for each in children(parent, step)]
        return any(each == self.expected and type(each) is type(self.expected) for each in found) or (
            bool(found) and not self.is_compared
        )


def parsed(text: str) -> Parsed:
    """Parses JSON. Keeps numbers as they are written, and keeps all members with the same name. Raises ValueError if
    the text is not JSON, and RecursionError if it is nested too deeply."""
    found: Parsed = json.loads(
        text, parse_int=JsonNumber, parse_float=JsonNumber, parse_constant=JsonNumber, object_pairs_hook=JsonMembers
    )
    return found


def below(top: Parsed) -> Iterator[Parsed]:
    """Yields a value and all values nested in it."""
    left: list[Parsed] = [top]
    while left:
        each = left.pop()
        yield each
        if isinstance(each, (JsonMembers, list)):
            left.extend(children(each, None))


def children(parent: Parsed, step: PathStep) -> Iterator[Parsed]:
    if isinstance(parent, JsonMembers):
        if not isinstance(step, int):
            yield from (value for name, value in parent.pairs if step is None or name == step)
    elif isinstance(parent, list):
        if step is None:
            yield from parent
        elif isinstance(step, int) and -len(parent) <= step < len(parent):
            yield parent[step]


def json_path(text: str) -> JsonPath:
    """Parses a path. Raises KafkaError (INVALID_REQUEST) with a message that describes the mistake."""
    path, is_compared, right = text.partition("==")
    try:
        expected = parsed(right) if is_compared else None
    except (ValueError, RecursionError):
        raise invalid(f"{right.strip()} after == is not JSON; put a string into quotation marks") from None
    rest = path.strip()
    if not rest.startswith("$"):
        raise invalid("a JSONPath begins with $, such as $.order.id")
    rest = rest[1:]
    steps: list[PathStep] = []
    deep: int | None = None
    while rest:
        if rest.startswith(".."):
            if deep is not None:
                raise invalid("a JSONPath may contain only one ..")
            deep = len(steps)
            rest = rest[1:] if not rest.startswith("..[") else rest[2:]
        step, rest = first_step(rest)
        steps.append(step)
        if len(steps) > MAX_STEPS:
            raise invalid(f"a JSONPath may have at most {MAX_STEPS} steps")
    return JsonPath(steps, deep, expected, bool(is_compared))


def first_step(rest: str) -> tuple[PathStep, str]:
    if rest.startswith("."):
        name = rest[1:]
        end = min((at for at in (name.find("."), name.find("[")) if at >= 0), default=len(name))
        if not name[:end].strip():
            raise invalid("a name is missing after the . of a JSONPath")
        step = name[:end].strip()
        return None if step == "*" else step, name[end:]
    for quote in ("'", '"'):
        if rest.startswith(f"[{quote}"):
            name, closed, after = rest[2:].partition(f"{quote}]")
            if closed:
                return name, after
    inside, closed, after = rest[1:].partition("]")
    if rest.startswith("[") and closed:
        if inside == "*":
            return None, after
        digits = inside.removeprefix("-")
        if digits.isascii() and digits.isdigit() and len(digits) < 10:
            return int(inside), after
    raise invalid(f"{rest[:20]} is not a step of a JSONPath; steps are .name, ['name'], [0], [*] and ..name")


def names_schema(data: bytes | None) -> bool:
    """Returns whether a key or value may begin with a schema id."""
    return data is not None and len(data) >= SCHEMA_ID_BYTES and data[0] == 0


def invalid(words: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, f"{words}.")


@dataclass(frozen=True, slots=True)
class RecordSelection:
    """The conditions that a record must meet to be shown. A condition that is None or empty is not checked.

    text    bytes that must occur in `place`
    path    a path that must select something in the value
    since   the earliest timestamp, in ms
    until   the latest timestamp, in ms
    states  the allowed states

    is_decoded  whether `matches_decoded` will check the text and the path later. If so, `matches` also accepts every
                record whose key or value names a schema
    """

    text: bytes = b""
    place: SearchedPart = SearchedPart.ANY
    path: JsonPath | None = None
    since: int | None = None
    until: int | None = None
    states: frozenset[str] = frozenset()
    is_decoded: bool = False

    @property
    def looks_into_contents(self) -> bool:
        """True if the selection depends on the contents of keys or values."""
        return self.path is not None or (bool(self.text) and self.place is not SearchedPart.HEADERS)

    def may_match(self, batch: memoryview) -> bool:
        """Returns whether an uncompressed batch may contain a matching record. If it cannot, its records need not be
        decoded."""
        return self.is_decoded or not self.text or self.text in bytes(batch)

    def matches(self, record: Record, state: str) -> bool:
        if self.states and state not in self.states:
            return False
        if self.since is not None and record.timestamp < self.since:
            return False
        if self.until is not None and record.timestamp > self.until:
            return False
        if self.is_decoded and (names_schema(record.key) or names_schema(record.value)):
            return True
        return self.matches_decoded(record, None, None)

    def matches_decoded(self, record: Record, key: str | None, value: str | None) -> bool:
        """Returns whether the text and the path match a record, in its stored bytes or in its decoded key and value.

        key, value  the decoded JSON, or None if the key or value was not decoded
        """
        if self.text and not any(self.text in each for each in self._searched(record)):
            decoded = {SearchedPart.KEY: key, SearchedPart.VALUE: value}
            if not any(
                json is not None and self.place in (SearchedPart.ANY, part) and self.text in json.encode()
                for part, json in decoded.items()
            ):
                return False
        return self.path is None or any(
            each is not None and self.path.matches(bytes(each))
            for each in (record.value, None if value is None else value.encode())
        )

    def _searched(self, record: Record) -> Iterator[bytes]:
        if self.place in (SearchedPart.ANY, SearchedPart.KEY) and record.key is not None:
            yield record.key
        if self.place in (SearchedPart.ANY, SearchedPart.VALUE) and record.value is not None:
            yield record.value
        if self.place in (SearchedPart.ANY, SearchedPart.HEADERS):
            for name, value in record.headers:
                yield name.encode()
                if value is not None:
                    yield value
