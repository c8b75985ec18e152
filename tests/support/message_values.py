"""Builds values for any message at any version, from a source of choices: a seeded generator or Hypothesis.

The version can encode all values: fields that it lacks keep their defaults, and null appears only where it is allowed.
"""

import sys
from collections.abc import Callable
from random import Random
from typing import Any, Protocol

from hypothesis import strategies as st

from odradek.protocol.messages import MODULES, message_class
from odradek.protocol.schema import INTEGERS, Field, Schema, load
from odradek.protocol.struct import Message, Struct

UNSIGNED = frozenset({"uint16", "uint32"})
WORDS = ("", "a", "orders", "größe", "日本語", "x" * 127, "y" * 128, "z" * 300)


def bounds(type_name: str) -> tuple[int, int]:
    bits = 8 * INTEGERS[type_name][0]
    return (0, 2**bits - 1) if type_name in UNSIGNED else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


class Choices(Protocol):
    def number(self, type_name: str) -> int: ...
    def real(self) -> float: ...
    def text(self) -> str: ...
    def binary(self) -> bytes: ...
    def uuid(self) -> bytes: ...
    def flag(self) -> bool: ...
    def size(self, depth: int) -> int: ...


class RandomChoices:
    """Choices of a seeded generator, which prefers extreme values."""

    def __init__(self, rng: Random, *, longest: int = 3) -> None:
        self._rng = rng
        self._longest = longest

    def number(self, type_name: str) -> int:
        lowest, highest = bounds(type_name)
        return self._rng.choice((0, 1, lowest, highest, self._rng.randint(lowest, highest)))

    def real(self) -> float:
        return self._rng.choice((0.0, -1.5, self._rng.random()))

    def text(self) -> str:
        return self._rng.choice(WORDS)

    def binary(self) -> bytes:
        return self._rng.randbytes(self._rng.choice((0, 1, 20, 127, 128, 500)))

    def uuid(self) -> bytes:
        return self._rng.randbytes(16)

    def flag(self) -> bool:
        return self._rng.random() < 0.5

    def size(self, depth: int) -> int:
        return self._rng.randint(0, max(1, self._longest - depth))


class LargeChoices(RandomChoices):
    """Fills outer arrays with `longest` elements and inner ones with two. Nothing is null."""

    def flag(self) -> bool:
        return False

    def size(self, depth: int) -> int:
        return self._longest if depth == 0 else 2


NUMBERS = {name: st.integers(*bounds(name)) for name in INTEGERS}
REALS = st.floats(allow_nan=False)
TEXTS = st.text(max_size=20)
BINARIES = st.binary(max_size=20)
UUIDS = st.binary(min_size=16, max_size=16)
FLAGS = st.booleans()
SIZES = st.integers(0, 3)


class DrawnChoices:
    """Choices that Hypothesis draws and shrinks."""

    def __init__(self, draw: Callable[[st.SearchStrategy[Any]], Any]) -> None:
        self._draw = draw

    def number(self, type_name: str) -> int:
        return int(self._draw(NUMBERS[type_name]))

    def real(self) -> float:
        return float(self._draw(REALS))

    def text(self) -> str:
        return str(self._draw(TEXTS))

    def binary(self) -> bytes:
        return bytes(self._draw(BINARIES))

    def uuid(self) -> bytes:
        return bytes(self._draw(UUIDS))

    def flag(self) -> bool:
        return bool(self._draw(FLAGS))

    def size(self, depth: int) -> int:
        return int(self._draw(SIZES)) if depth < 2 else 1


def build_message(module: str, version: int, choices: Choices) -> Message:
    """Returns a message with values from `choices`."""
    schema = load(module)
    message = message_class(module)()
    _fill(message, schema.fields, schema, version, choices, 0)
    return message


def _fill(
    struct: Struct, fields: tuple[Field, ...], schema: Schema, version: int, choices: Choices, depth: int
) -> None:
    for field in fields:
        if version not in field.versions or (field.tag is not None and choices.flag()):
            continue
        value = _value(field, schema, version, choices, depth)
        if field.is_null_when_absent and value == type(value)():
            value = None  # A tagged struct with only default values is not encoded.
        setattr(struct, field.attribute, value)


def _value(field: Field, schema: Schema, version: int, choices: Choices, depth: int) -> Any:
    if version in field.nullable and choices.flag():
        return None
    if field.is_array:
        return [_one(field, schema, version, choices, depth + 1) for _ in range(choices.size(depth))]
    return _one(field, schema, version, choices, depth)


def _one(field: Field, schema: Schema, version: int, choices: Choices, depth: int) -> Any:
    if field.is_struct:
        struct = getattr(sys.modules[message_class(schema.module).__module__], field.type)()
        _fill(struct, schema.structs[field.type], schema, version, choices, depth)
        return struct
    if field.type in INTEGERS:
        return choices.number(field.type)
    made = {"string": choices.text, "bool": choices.flag, "uuid": choices.uuid, "float64": choices.real}
    return made.get(field.type, choices.binary)()


def versions() -> list[tuple[str, int]]:
    """Returns (message, version) for every version of every message."""
    return [(module, version) for module in MODULES for version in load(module).version_range()]
