"""Generates the source of the encoder for one version of a message.

    def write(message, out, chunks): ...

The encoder appends bytes to the bytearray `out`. Large records are not copied. Instead, `out` and then the records are
appended to `chunks`, and the encoder continues with a new bytearray. At the end, the last bytearray is appended to
`chunks`.
"""

from typing import Any

from odradek.protocol import primitives
from odradek.protocol.schema import FIXED, NO_VERSIONS, Field, Schema
from odradek.protocol.source import CodecSource
from odradek.protocol.struct import ZERO_UUID

HELPERS = (
    "ENCODING_ERRORS",
    "add_records",
    "cannot_carry",
    "fixed_array",
    "records_size",
    "string_varint",
    "unfit",
    "varint",
)


class WriterSource(CodecSource):
    """Generates an encoder. Each item of a run consists of a struct code and the expression to pack. The item for a
    zero byte has no expression."""

    def __init__(self, schema: Schema, version: int) -> None:
        super().__init__(schema, version)
        self.names = {name: getattr(primitives, name) for name in HELPERS}
        self.names["ZERO_UUID"] = ZERO_UUID

    def write(self) -> str:
        with self.block("try:"):
            self.early("pass")  # required for message versions that have no fields
            self.struct(self.schema.fields, "m")
        with self.block("except ENCODING_ERRORS as error:"):
            self.line(f"raise unfit({f'{self.schema.name} v{self.version}'!r}, error) from error")
        with self.block("if out:"):
            self.line("chunks.append(out)")
        return self.text("def write(m, out, chunks):")

    def flush(self) -> None:
        if self.run:
            run, self.run = self.run, []
            self.early(f"out += {self.packed(run)}")

    def packed(self, run: list[tuple[str, str]]) -> str:
        codes = "".join(code for code, _ in run)
        if not codes.strip("x"):
            return repr(bytes(len(codes)))
        name = f"pack_{codes.replace('?', 'Z')}"
        self.names[name] = primitives.packing(">" + codes).pack
        return f"{name}({', '.join(value for _, value in run if value)})"

    def length(self, name: str, *, is_string: bool = False, is_records: bool = False) -> None:
        """Adds lines that encode the length in the variable `name` as a varint. One-byte varints, and for records also
        two-byte varints, are packed together with the current run, because lengths are nearly always that small.
        """
        short, self.run = [*self.run, ("B", name)], []
        with self.block(f"if {name} < 128:"):
            if len(short) == 1:
                self.line(f"out.append({name})")
            else:
                self.line(f"out += {self.packed(short)}")
        if is_records:
            with self.block(f"elif {name} < 16384:"):
                two = [("B", f"{name} & 127 | 128"), ("B", f"{name} >> 7")]
                self.line(f"out += {self.packed([*short[:-1], *two])}")
        with self.block("else:"):
            if len(short) > 1:
                self.line(f"out += {self.packed(short[:-1])}")
            self.line(f"out += {'string_varint' if is_string else 'varint'}({name})")

    def is_set(self, field: Field, value: str) -> str:
        """Returns the source of an expression that is true if a field differs from its default."""
        if field.default_is_empty:
            if field.is_array:
                return value if field.nullable == NO_VERSIONS else f"({value} or {value} is None)"
            differs = f"{value} != {field.type}()"
            return f"({value} is not None and {differs})" if field.is_null_when_absent else differs
        if field.default is None:
            return f"{value} is not None"
        default = "ZERO_UUID" if field.default == ZERO_UUID else repr(field.default)
        return f"{value} != {default}"

    def struct(self, fields: tuple[Field, ...], var: str) -> None:
        regular, tagged, others = self.present(fields)
        lost = [field for field in others if not field.ignorable]
        if lost:
            test = " or ".join(self.is_set(field, f"{var}.{field.attribute}") for field in lost)
            with self.early_block(f"if {test}:"):
                self.early(f"raise cannot_carry({', '.join(field.name for field in lost)!r})")
        for field in regular:
            self.field(field, f"{var}.{field.attribute}")
        if self.is_flexible and not tagged:
            self.run.append(("x", ""))
        elif self.is_flexible:
            self.tags(tagged, var)

    def tags(self, tagged: list[Field], var: str) -> None:
        tests = [self.is_set(field, f"{var}.{field.attribute}") for field in tagged]
        with self.block(f"if {' or '.join(tests)}:"):
            self.line(f"out.append({' + '.join(f'bool({test})' for test in tests)})")
            for field, test in zip(tagged, tests, strict=True):
                with self.block(f"if {test}:"):
                    assert field.tag is not None
                    self.line(f"out += {primitives.varint(field.tag)!r}")
                    outer = self.name("outer")
                    self.line(f"{outer} = out")
                    self.line("out = bytearray()")
                    self.field(field, f"{var}.{field.attribute}")
                    self.line(f"{outer} += varint(len(out))")
                    self.line(f"{outer} += out")
                    self.line(f"out = {outer}")
        with self.block("else:"):
            self.line("out.append(0)")

    def field(self, field: Field, value: str) -> None:
        is_nullable = self.version in field.nullable
        if field.is_array:
            self.array(field, value, is_nullable)
        elif field.is_struct:
            if is_nullable:
                with self.block(f"if {value} is None:"):
                    self.line(f"out.append({255 if field.tag is None else 0})")
                with self.block("else:"):
                    self.line("out.append(1)")
                    self.inner_struct(field, value)
            else:
                self.inner_struct(field, value)
        elif field.type in FIXED:
            self.run.append(("?" if field.type == "bool" else FIXED[field.type][1], value))
        else:
            self.sized(field, value, is_nullable)

    def inner_struct(self, field: Field, value: str) -> None:
        var = self.name("s")
        self.early(f"{var} = {value}")
        self.struct(self.schema.structs[field.type], var)

    def sized(self, field: Field, value: str, is_nullable: bool) -> None:
        """Adds lines that encode a string, bytes or records."""
        body, length = self.name("b"), self.name("n")
        compact = self.compact(field)
        extra = " + 1" if compact else ""
        is_records = field.type == "records"
        take = f"{body} = {value}.encode()" if field.type == "string" else f"{body} = {value}"
        size = f"(len({body}) if type({body}) is not list else records_size({body}))" if is_records else f"len({body})"
        if is_nullable:
            with self.early_block(f"if {value} is None:"):
                self.early(f'{length}, {body} = {0 if compact else -1}, b""')
            with self.early_block("else:"):
                self.early(take)
                self.early(f"{length} = {size}{extra}")
        else:
            self.early(take)
            self.early(f"{length} = {size}{extra}")
        if compact:
            self.length(length, is_string=field.type == "string", is_records=is_records)
        else:
            self.run.append(("h" if field.type == "string" else "i", length))
        if is_records:
            with self.block(f"if {length} < {primitives.COPY_BELOW_BYTES} and type({body}) is not list:"):
                self.line(f"out += {body}")
            with self.block("else:"):
                self.line(f"out = add_records({body}, out, chunks)")
        else:
            self.line(f"out += {body}")

    def array(self, field: Field, value: str, is_nullable: bool) -> None:
        elements, count = self.name("a"), self.name("n")
        compact = self.compact(field)
        extra = " + 1" if compact else ""
        self.early(f"{elements} = {value}")
        if is_nullable:
            with self.early_block(f"if {elements} is None:"):
                self.early(f"{count}, {elements} = {0 if compact else -1}, ()")
            with self.early_block("else:"):
                self.early(f"{count} = len({elements}){extra}")
        else:
            self.early(f"{count} = len({elements}){extra}")
        if compact:
            self.length(count)
        else:
            self.run.append(("i", count))
        if field.type in FIXED:
            code = "?" if field.type == "bool" else FIXED[field.type][1]
            with self.block(f"if {elements}:"):
                self.line(f'out += fixed_array({elements}, "{code}")')
            return
        element = self.name("e")
        with self.block(f"for {element} in {elements}:"):
            if field.is_struct:
                self.struct(self.schema.structs[field.type], element)
            else:
                self.sized(field, element, False)


def writer_source(schema: Schema, version: int) -> tuple[str, dict[str, Any]]:
    """Returns the encoder's source, and the names that it uses other than the message's classes."""
    source = WriterSource(schema, version)
    text = source.write()
    return text, source.names
