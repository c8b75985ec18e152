"""Converts values of Avro schemas to human-readable JSON, and back.

A union's value is shown without the name of its branch. Dates, times, timestamps and decimals are shown as text. Bytes
are shown as in Avro's JSON: each byte becomes the character with that code.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Context, Decimal, DecimalException
from io import BytesIO
from typing import Any, Final

import avro.errors
import avro.io
import avro.schema

from odradek.registry.avro_documents import NAMED
from odradek.registry.avro_schemas import AvroSchema
from odradek.registry.schemas import Json
from odradek.registry.values import DecodingBudget, DoesNotFitSchema, json_text

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
DAY: Final = timedelta(days=1)
MICROSECOND: Final = timedelta(microseconds=1)
BITS: Final = {"int": 32, "long": 64}
MAX_DIGITS: Final = 10_000  # maximum number of digits in a decimal; converting a longer one would take seconds
NOT_A_NUMBER: Final = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
# Errors that the Avro library raises for bytes that are not a value of the schema.
BAD_BYTES: Final = (avro.errors.AvroException, ArithmeticError, ValueError, TypeError, LookupError, struct.error)


class _TextDecoder(avro.io.BinaryDecoder):
    """Reads dates and times as text. Dates and times after the year 9999, which the library cannot convert, are
    returned as the stored numbers."""

    def read_date_from_int(self) -> Any:
        return _text(lambda days: (EPOCH + days * DAY).date().isoformat(), self.read_int())

    def read_time_millis_from_int(self) -> Any:
        return _text(lambda millis: _time(millis * 1_000), self.read_int())

    def read_time_micros_from_long(self) -> Any:
        return _text(_time, self.read_long())

    def read_timestamp_millis_from_long(self) -> Any:
        return _text(lambda millis: _timestamp(millis * 1_000, "milliseconds"), self.read_long())

    def read_timestamp_micros_from_long(self) -> Any:
        return _text(lambda micros: _timestamp(micros, "microseconds"), self.read_long())

    def read_decimal_from_fixed(self, precision: int, scale: int, size: int) -> Any:
        content = self.read(size)
        if size > MAX_DIGITS // 3:
            raise avro.errors.AvroException(f"a decimal of {size} bytes")
        unscaled = int.from_bytes(content, "big", signed=True)
        return format(Decimal(unscaled).scaleb(-scale, Context(prec=MAX_DIGITS)), "f")


def _text(convert: Callable[[int], str], number: int) -> str | int:
    try:
        return convert(number)
    except (OverflowError, ValueError):
        return number


def _time(micros: int) -> str:
    if not 0 <= micros < DAY // MICROSECOND:
        raise ValueError(micros)
    return (EPOCH + micros * MICROSECOND).time().isoformat()


def _timestamp(micros: int, precision: str) -> str:
    return (EPOCH + micros * MICROSECOND).replace(tzinfo=None).isoformat(timespec=precision) + "Z"


class _BudgetedReader(avro.io.DatumReader):
    """Counts the values that it reads. The library itself limits only values that occupy no bytes."""

    def __init__(self, schema: avro.schema.Schema, budget: DecodingBudget) -> None:
        super().__init__(schema)
        self._budget = budget

    def read_data(
        self, writers_schema: avro.schema.Schema, readers_schema: avro.schema.Schema, decoder: avro.io.BinaryDecoder
    ) -> object:
        self._budget.take_values()
        return super().read_data(writers_schema, readers_schema, decoder)


def decode(payload: bytes, schema: AvroSchema, budget: DecodingBudget) -> str:
    """Returns the value as JSON. Raises DoesNotFitSchema or TooMuchToDecode."""
    if _is_raw(schema.parsed):
        return json_text(payload.decode("latin-1"), budget)
    stream = BytesIO(payload)
    try:
        found = _BudgetedReader(schema.parsed, budget).read(_TextDecoder(stream))
    except BAD_BYTES as error:
        raise DoesNotFitSchema(f"its bytes are not a value of the schema: {error}") from error
    left = len(payload) - stream.tell()
    if left:
        raise DoesNotFitSchema(f"{left} bytes follow its value")
    return json_text(_as_json(found), budget)


def encode(value: Json, schema: AvroSchema) -> bytes:
    """Returns the bytes of a JSON value. Raises DoesNotFitSchema with a message that names the field.

    A union's value can name its branch, as in Avro's JSON: {"string": "x"}. Otherwise, the first branch that the value
    fits is used.
    """
    if _is_raw(schema.parsed):
        return _bytes(value, "")
    stream = BytesIO()
    _write(value, schema.parsed, avro.io.BinaryEncoder(stream), "")
    return stream.getvalue()


def _is_raw(schema: Any) -> bool:
    """Returns whether a value is written as plain bytes, without its length. Confluent's serializers do this if the
    complete schema is "bytes"."""
    return bool(schema.type == "bytes") and schema.get_prop("logicalType") is None


def _as_json(found: Any) -> Json:
    match found:
        case bytes():
            return found.decode("latin-1")
        case float() if not math.isfinite(found):
            return next(name for name, number in NOT_A_NUMBER.items() if str(number) == str(found))
        case list():
            return [_as_json(each) for each in found]
        case Mapping():
            return {name: _as_json(each) for name, each in found.items()}
    return found


def _write(value: Json, schema: Any, encoder: avro.io.BinaryEncoder, path: str) -> None:
    kind = schema.type
    if kind in ("union", "error_union"):
        _write_union(value, schema, encoder, path)
    elif kind in ("record", "error"):
        _write_record(value, schema, encoder, path)
    elif kind == "array":
        _require(isinstance(value, list), value, "an array", path)
        if value:
            encoder.write_long(len(value))
        for index, each in enumerate(value):
            _write(each, schema.items, encoder, f"{path}[{index}]")
        encoder.write_long(0)
    elif kind == "map":
        _require(isinstance(value, dict), value, "an object", path)
        if value:
            encoder.write_long(len(value))
        for name, each in value.items():
            encoder.write_utf8(name)
            _write(each, schema.values, encoder, f"{path}.{name}")
        encoder.write_long(0)
    else:
        _write_leaf(value, schema, encoder, path)


def _write_leaf(value: Json, schema: Any, encoder: avro.io.BinaryEncoder, path: str) -> None:
    kind = schema.type
    if kind == "null":
        _require(value is None, value, "null", path)
    elif kind == "boolean":
        _require(isinstance(value, bool), value, "true or false", path)
        encoder.write_boolean(value)
    elif kind in BITS:
        number = _number(value, schema.get_prop("logicalType"))
        half = 1 << BITS[kind] - 1
        _require(isinstance(number, int) and not isinstance(number, bool), value, _expected_type(schema), path)
        _require(-half <= number < half, value, f"a number of {BITS[kind]} bits", path)
        encoder.write_long(number)
    elif kind in ("float", "double"):
        number = NOT_A_NUMBER.get(value, value) if isinstance(value, str) else value
        _require(isinstance(number, int | float) and not isinstance(number, bool), value, "a number", path)
        try:
            (encoder.write_float if kind == "float" else encoder.write_double)(number)
        except OverflowError:
            _require(False, value, f"a {kind}", path)
    elif kind == "string":
        _require(isinstance(value, str), value, "a string", path)
        encoder.write_utf8(value)
    elif kind == "enum":
        _require(value in schema.symbols, value, f"one of {', '.join(schema.symbols)}", path)
        encoder.write_long(schema.symbols.index(value))
    elif kind == "bytes":
        content = _bytes_or_decimal(value, schema, path)
        encoder.write_long(len(content))
        encoder.write(content)
    else:
        assert kind == "fixed"
        content = _bytes_or_decimal(value, schema, path)
        _require(len(content) == schema.size, value, f"{schema.size} bytes", path)
        encoder.write(content)


def _write_union(value: Json, schema: Any, encoder: avro.io.BinaryEncoder, path: str) -> None:
    tries = list(enumerate(schema.schemas))
    if isinstance(value, dict) and len(value) == 1:
        (name,) = value
        named = [(index, branch) for index, branch in tries if name in _names(branch)]
        if named:
            index, branch = named[0]
            encoder.write_long(index)
            _write(value[name], branch, encoder, path)
            return
    problems = []
    for index, branch in tries:
        stream = BytesIO()
        try:
            _write(value, branch, avro.io.BinaryEncoder(stream), path)
        except DoesNotFitSchema as error:
            problems.append(str(error))
            continue
        encoder.write_long(index)
        encoder.write(stream.getvalue())
        return
    raise DoesNotFitSchema("; ".join(problems))


def _names(branch: Any) -> tuple[str, ...]:
    return (branch.name, branch.fullname) if branch.type in NAMED else (branch.type,)


def _write_record(value: Json, schema: Any, encoder: avro.io.BinaryEncoder, path: str) -> None:
    _require(isinstance(value, dict), value, "an object", path)
    unknown = value.keys() - {field.name for field in schema.fields}
    if unknown:
        raise DoesNotFitSchema(f"{schema.fullname} has no field {min(unknown)}")
    for field in schema.fields:
        place = f"{path}.{field.name}"
        if field.name in value:
            _write(value[field.name], field.type, encoder, place)
        elif field.has_default:
            _write(field.default, field.type, encoder, place)
        else:
            raise DoesNotFitSchema(f"the field {place.lstrip('.')} is missing and has no default")


def _expected_type(schema: Any) -> str:
    logical = schema.get_prop("logicalType")
    return "a whole number" if logical is None else f"a whole number, or a text of the logical type {logical}"


def _number(value: Json, logical: str | None) -> Json:
    """Converts a logical type's text form to the number that is stored. Returns any other value unchanged."""
    if not isinstance(value, str):
        return value
    try:
        match logical:
            case "date":
                return date.fromisoformat(value).toordinal() - EPOCH.toordinal()
            case "time-millis" | "time-micros":
                at = time.fromisoformat(value)
                micros = ((at.hour * 60 + at.minute) * 60 + at.second) * 1_000_000 + at.microsecond
                return micros // 1_000 if logical == "time-millis" else micros
            case "timestamp-millis" | "timestamp-micros":
                moment = datetime.fromisoformat(value)
                moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
                micros = (moment - EPOCH) // MICROSECOND
                return micros // 1_000 if logical == "timestamp-millis" else micros
    except ValueError:
        pass
    return value


def _bytes_or_decimal(value: Json, schema: Any, path: str) -> bytes:
    if schema.get_prop("logicalType") != "decimal" or not isinstance(schema.get_prop("scale"), int):
        return _bytes(value, path)
    _require(isinstance(value, str | int | float) and not isinstance(value, bool), value, "a decimal", path)
    scale = schema.get_prop("scale")
    try:
        number = Decimal(str(value))
        _require(number.is_finite() and abs(number.adjusted()) < MAX_DIGITS // 4, value, "a decimal", path)
        scaled = number.scaleb(scale, Context(prec=MAX_DIGITS))
    except DecimalException:
        _require(False, value, "a decimal", path)
    _require(
        scaled == scaled.to_integral_value(), value, f"a decimal with {scale} digits after the decimal point", path
    )
    unscaled = int(scaled)
    size = schema.size if schema.type == "fixed" else unscaled.bit_length() // 8 + 1
    try:
        return unscaled.to_bytes(size, "big", signed=True)
    except OverflowError:
        raise DoesNotFitSchema(_misfit(value, f"a decimal of {size} bytes", path)) from None


def _bytes(value: Json, path: str) -> bytes:
    _require(isinstance(value, str), value, "a string of bytes", path)
    try:
        return str(value).encode("latin-1")
    except UnicodeEncodeError:
        raise DoesNotFitSchema(_misfit(value, "a string of bytes (\\u0000 to \\u00ff)", path)) from None


def _require(is_right: bool, value: Json, expected: str, path: str) -> None:
    if not is_right:
        raise DoesNotFitSchema(_misfit(value, expected, path))


def _misfit(value: Json, expected: str, path: str) -> str:
    shown = repr(value) if len(repr(value)) <= 60 else f"{repr(value)[:60]}…"
    return f"{path.lstrip('.') or 'the value'} must be {expected}, not {shown}"
