"""The common base of the decoder and encoder generators, which handles lines, names, and runs of fixed-size fields.

Adjacent fixed-size fields are combined into one `struct` call, even across struct boundaries.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from odradek.protocol.schema import FIXED, Field, Schema


class CodecSource:
    """The source of one function while it is being generated. `run` collects the items for the next `struct` call. An
    item consists of a struct code and the target or the value."""

    def __init__(self, schema: Schema, version: int) -> None:
        self.schema = schema
        self.version = version
        self.is_flexible = version in schema.flexible
        self.lines: list[str] = []
        self.run: list[tuple[str, str]] = []
        self.names: dict[str, Any] = {}
        self._indent = "    "
        self._count = 0

    def name(self, prefix: str) -> str:
        """Returns an unused local name."""
        self._count += 1
        return f"{prefix}{self._count}"

    def early(self, text: str) -> None:
        """Adds a line that can come before the current run, because it neither reads nor writes bytes."""
        self.lines.append(self._indent + text)

    def line(self, text: str) -> None:
        self.flush()
        self.early(text)

    @contextmanager
    def block(self, text: str) -> Iterator[None]:
        """Adds an indented block below the line `text`. Runs do not extend beyond the block."""
        self.line(text)
        indent = self._indent
        self._indent += "    "
        yield
        self.flush()
        self._indent = indent

    @contextmanager
    def early_block(self, text: str) -> Iterator[None]:
        """Adds an indented block that contains only early lines."""
        self.early(text)
        indent = self._indent
        self._indent += "    "
        yield
        self._indent = indent

    def flush(self) -> None:
        """Adds the line that reads or writes the current run and ends the run."""
        raise NotImplementedError

    def text(self, head: str) -> str:
        return head + "\n" + "\n".join(self.lines) + "\n"

    def present(self, fields: tuple[Field, ...]) -> tuple[list[Field], list[Field], list[Field]]:
        """Returns the version's regular fields, its tagged fields in tag order, and the fields that the version does
        not have."""
        here = [field for field in fields if self.version in field.versions]
        tagged = sorted((field for field in here if field.tag is not None), key=lambda field: field.tag or 0)
        others = [field for field in fields if self.version not in field.versions]
        return [field for field in here if field.tag is None], tagged, others

    def compact(self, field: Field) -> bool:
        """Returns whether the field's length is encoded as a varint."""
        return self.is_flexible and field.flexible

    def min_size(self, field: Field) -> int:
        """Returns the minimum size of a value that is not null, or of one element if the field is an array."""
        if field.type in FIXED:
            return FIXED[field.type][0]
        if field.is_struct:
            return self.min_struct_size(self.schema.structs[field.type])
        if self.compact(field):
            return 1
        return 2 if field.type == "string" else 4

    def min_struct_size(self, fields: tuple[Field, ...]) -> int:
        total = 1 if self.is_flexible else 0
        for field in self.present(fields)[0]:
            if field.is_array:
                total += 1 if self.compact(field) else 4
            elif field.is_struct and self.version in field.nullable:
                total += 1
            else:
                total += self.min_size(field)
        return total
