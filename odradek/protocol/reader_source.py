"""Generates the source of the decoder for one version of a message.

    def read(data, p): ... return message, position

The decoder can read past the end of the data, because a slice of missing bytes is merely shorter. It compares the
position with the end only once, after everything has been read.
"""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from odradek.protocol import primitives
from odradek.protocol.schema import FIXED, Field, Schema
from odradek.protocol.source import CodecSource
from odradek.protocol.struct import ZERO_UUID, new

HELPERS = (
    "DECODING_ERRORS",
    "malformed",
    "read_varint",
    "longer_varint",
    "longer_string_length",
    "skip_tags",
    "read_fixed_array",
    "unexpected_null",
    "wrong_count",
)


class ReaderSource(CodecSource):
    """Generates a decoder. The decoder first copies other types of buffers to bytes, because bytes are faster to read.
    If the message contains records, the decoder copies nothing, and `view` is a view of the given buffer."""

    def __init__(self, schema: Schema, version: int) -> None:
        super().__init__(schema, version)
        self.has_records = has_records(schema)
        self.names = {name: getattr(primitives, name) for name in HELPERS}
        self.names |= {"new": new, "ZERO_UUID": ZERO_UUID}
        self.what = f"{schema.name} v{version}"

    def write(self) -> str:
        if self.has_records:
            self.line("view = data if type(data) is memoryview else memoryview(data)")
        else:
            with self.block("if type(data) is not bytes:"):
                self.line("m, q = read(bytes(data[p:]), 0)")
                self.line("return m, p + q")
        self.line("end = len(data)")
        with self.block("try:"):
            self.line(f"m = new({self.schema.name})")
            self.struct(self.schema.fields, "m")
        with self.block("except DECODING_ERRORS as error:"):
            self.line(f"raise malformed({self.what!r}, error) from error")
        with self.block("if p > end:"):
            self.line(f'raise malformed({self.what!r}, f"{{p - end}} bytes are missing")')
        self.line("return m, p")
        return self.text("def read(data, p):")

    def flush(self) -> None:
        if not self.run:
            return
        codes = "".join(code for code, _ in self.run)
        targets = ", ".join(target for _, target in self.run) + ("," if len(self.run) == 1 else "")
        self.run = []
        if codes == "B":
            self.early(f"{targets[:-1]} = data[p]")
            self.early("p += 1")
            return
        packing = primitives.packing(">" + codes)
        name = f"read_{codes.replace('?', 'Z')}"
        self.names[name] = packing.unpack_from
        self.early(f"{targets} = {name}(data, p)")
        self.early(f"p += {packing.size}")

    def struct(self, fields: tuple[Field, ...], var: str) -> None:
        """Adds lines that decode the fields of the struct in `var`."""
        regular, tagged, others = self.present(fields)
        for field in [*others, *tagged]:
            self.early(f"{var}.{field.attribute} = {self.default(field)}")
        for field in regular:
            self.field(field, f"{var}.{field.attribute}")
        if self.is_flexible:
            self.tags(tagged, var)

    def default(self, field: Field) -> str:
        if field.default_is_empty:
            if field.is_array:
                return "[]"
            return "None" if field.is_null_when_absent else f"{field.type}()"
        return "ZERO_UUID" if field.default == ZERO_UUID else repr(field.default)

    def tags(self, tagged: list[Field], var: str) -> None:
        count = self.name("n")
        self.run.append(("B", count))
        if not tagged:
            with self.block(f"if {count}:"):
                self.line(f"p = skip_tags(data, p, {count})")
            return
        with self.block(f"if {count}:"):
            with self.block(f"if {count} > 127:"):
                self.line(f"{count}, p = longer_varint(data, p, {count})")
            with self.block(f"for _ in range({count}):"):
                self.line("tag, p = read_varint(data, p)")
                self.line("size, p = read_varint(data, p)")
                for number, field in enumerate(tagged):
                    with self.block(f"{'if' if number == 0 else 'elif'} tag == {field.tag}:"):
                        self.field(field, f"{var}.{field.attribute}")
                with self.block("else:"):
                    self.line("p += size")

    def field(self, field: Field, target: str) -> None:
        is_nullable = self.version in field.nullable
        if field.is_array:
            self.array(field, target, is_nullable)
        elif field.is_struct:
            if is_nullable:
                marker = self.name("n")
                self.run.append(("b" if field.tag is None else "B", marker))
                with self.block(f"if {marker} {'< 0' if field.tag is None else '== 0'}:"):
                    self.line(f"{target} = None")
                with self.block("else:"):
                    self.inner_struct(field, target)
            else:
                self.inner_struct(field, target)
        elif field.type in FIXED:
            code = "?" if field.type == "bool" else FIXED[field.type][1]
            self.run.append((code, target))
        else:
            self.sized(field, target, is_nullable)

    def inner_struct(self, field: Field, target: str) -> None:
        var = self.name("s")
        self.early(f"{var} = {target} = new({field.type})")
        self.struct(self.schema.structs[field.type], var)

    def sized(self, field: Field, target: str, is_nullable: bool) -> None:
        """Adds lines that decode a string, bytes or records."""
        is_string = field.type == "string"
        null_test, size = self.size(
            field, "h" if is_string else "i", "longer_string_length" if is_string else "longer_varint"
        )
        with self.unless_null(field, target, null_test, is_nullable):
            self.slice(field, target, f"p + {size}")

    def size(self, field: Field, code: str, longer: str) -> tuple[str, str]:
        """Adds lines that decode a length or a count. Returns an expression that is true for null, and the expression
        for the size of other values."""
        read = self.name("n")
        if not self.compact(field):
            self.run.append((code, read))
            return f"{read} < 0", read
        self.run.append(("B", read))
        with self.block(f"if {read} > 127:"):
            self.line(f"{read}, p = {longer}(data, p, {read})")
        return f"{read} == 0", f"{read} - 1"

    def unless_null(self, field: Field, target: str, null_test: str, is_nullable: bool) -> AbstractContextManager[None]:
        """Adds lines that handle null, and opens a block that runs if the value is not null."""
        with self.block(f"if {null_test}:"):
            self.line(f"{target} = None" if is_nullable else f"raise unexpected_null({field.name!r})")
        return self.block("else:") if is_nullable else nullcontext()

    def slice(self, field: Field, target: str, behind: str) -> None:
        self.line(f"q = {behind}")
        if field.type == "records":
            value = "view[p:q]"
        elif field.type == "bytes":
            value = "bytes(data[p:q])" if self.has_records else "data[p:q]"
        else:
            value = 'str(data[p:q], "utf-8")' if self.has_records else "data[p:q].decode()"
        self.line(f"{target} = {value}")
        self.line("p = q")

    def array(self, field: Field, target: str, is_nullable: bool) -> None:
        null_test, size = self.size(field, "i", "longer_varint")
        with self.unless_null(field, target, null_test, is_nullable):
            self.elements(field, target, size)

    def elements(self, field: Field, target: str, size: str) -> None:
        if field.type in FIXED:
            code = "?" if field.type == "bool" else FIXED[field.type][1]
            self.line(f'{target}, p = read_fixed_array(data, p, {size}, "{code}")')
            return
        smallest = self.min_size(field)
        assert smallest > 0, f"the elements of {field.name} have no bytes"
        with self.block(f"if ({size}) * {smallest} > end - p:"):
            self.line(f"raise wrong_count({size})")
        elements = self.name("a")
        self.line(f"{elements} = {target} = []")
        with self.block(f"for _ in range({size}):"):
            element = self.name("e")
            if field.is_struct:
                self.line(f"{element} = new({field.type})")
                self.line(f"{elements}.append({element})")
                self.struct(self.schema.structs[field.type], element)
            else:
                self.sized(field, element, False)
                self.line(f"{elements}.append({element})")


def has_records(schema: Schema) -> bool:
    """Returns whether the decoded message contains views of the data."""
    return any(field.type == "records" for fields in (schema.fields, *schema.structs.values()) for field in fields)


def reader_source(schema: Schema, version: int) -> tuple[str, dict[str, Any]]:
    """Returns the decoder's source, and the names that it uses other than the message's classes."""
    source = ReaderSource(schema, version)
    text = source.write()
    return text, source.names
