"""Tests keys and values in Confluent's wire format by comparing them with JSON. The bytes are written by hand.

Sources: Confluent's documentation of the wire format, and the Avro specification 1.12 for the binary encoding.
"""

import json
from typing import Any

import pytest

from odradek.registry.schemas import AVRO, JSON, PROTOBUF, ParsedSchema, Reference, parse
from odradek.registry.values import (
    DecodingBudget,
    DoesNotFitSchema,
    NotInWireFormat,
    SchemaValueError,
    TooMuchToDecode,
    decode,
    encode,
    encode_text,
    schema_id_of,
)

HEAD = bytes.fromhex("00 00000007")  # magic byte 0, schema id 7


def decoded(content: bytes, schema_type: str, schema: ParsedSchema) -> Any:
    return json.loads(decode(content, schema_type, schema))


def avro(schema: object) -> ParsedSchema:
    return parse(AVRO, json.dumps(schema))


def record(*fields: dict[str, Any]) -> ParsedSchema:
    return avro({"type": "record", "name": "R", "namespace": "n", "fields": list(fields)})


def field(name: str, kind: object, /, **more: object) -> dict[str, Any]:
    return {"name": name, "type": kind, **more}


def logical(kind: str, name: str, /, **more: object) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **more}


PROTO = parse(
    PROTOBUF,
    """syntax = "proto3";
    package shop;
    message Click { int64 at = 1; string page_name = 2; repeated int32 path = 3; }
    message Order { message Line { uint32 count = 1; } Line line = 1; }
    """,
)


def test_the_id_of_the_schema_follows_a_zero_byte() -> None:
    assert schema_id_of(HEAD) == 7
    assert schema_id_of(bytes.fromhex("00 7fffffff 01")) == 2**31 - 1


@pytest.mark.parametrize("content", [b"", b"\0\0\0\0", b'{"a": 1}', bytes(5), b"\0\xff\xff\xff\xff", b"\1\0\0\0\7x"])
def test_other_bytes_are_not_in_wire_format(content: bytes) -> None:
    with pytest.raises(NotInWireFormat):
        schema_id_of(content)


PEOPLE = record(
    field("id", "long"),
    field("name", ["null", "string"], default=None),
    field("tags", {"type": "array", "items": "string"}),
    field("more", {"type": "map", "values": "boolean"}),
    field("colour", {"type": "enum", "name": "Colour", "symbols": ["RED", "BLUE"]}),
)


@pytest.mark.parametrize(
    ("schema", "payload", "value"),
    [
        (avro("null"), "", None),
        (avro("boolean"), "01", True),
        (avro("int"), "7f", -64),
        (avro("long"), "80 01", 64),
        (avro("string"), "06 61 c3 a9", "aé"),
        (avro("double"), "00 00 00 00 00 00 f8 3f", 1.5),
        (avro("double"), "00 00 00 00 00 00 f0 7f", "Infinity"),
        (avro("double"), "00 00 00 00 00 00 f8 7f", "NaN"),
        (avro("bytes"), "00 ff", "\0\xff"),  # The whole schema is `bytes`, so the value has no length prefix.
        (record(field("b", "bytes")), "04 00 ff", {"b": "\0\xff"}),
        (avro({"type": "fixed", "name": "F", "size": 2}), "01 80", "\1\x80"),
        (PEOPLE, "02 00 00 00 02", {"id": 1, "name": None, "tags": [], "more": {}, "colour": "BLUE"}),
        (
            PEOPLE,
            "02 02 02 61 04 02 62 02 63 00 02 02 6b 01 00 00",
            {"id": 1, "name": "a", "tags": ["b", "c"], "more": {"k": True}, "colour": "RED"},
        ),
        (avro(logical("int", "date")), "02", "1970-01-02"),
        (avro(logical("int", "date")), "01", "1969-12-31"),
        (avro(logical("int", "time-millis")), "d0 0f", "00:00:01"),
        (avro(logical("long", "time-micros")), "02", "00:00:00.000001"),
        (avro(logical("long", "timestamp-millis")), "d0 0f", "1970-01-01T00:00:01.000Z"),
        (avro(logical("long", "timestamp-micros")), "02", "1970-01-01T00:00:00.000001Z"),
        (avro(logical("long", "timestamp-millis")), "fe ff ff ff ff ff ff ff ff 01", 2**63 - 1),
        (avro(logical("bytes", "decimal", precision=6, scale=2)), "04 04 d2", "12.34"),
        (avro(logical("bytes", "decimal", precision=6, scale=2)), "02 ff", "-0.01"),
        (avro(logical("fixed", "decimal", name="D", size=2, precision=4, scale=1)), "00 05", "0.5"),
    ],
)
def test_an_avro_value_is_json_for_people_and_the_same_bytes_again(
    schema: ParsedSchema, payload: str, value: object
) -> None:
    content = HEAD + bytes.fromhex(payload)
    assert decoded(content, AVRO, schema) == value
    assert encode(value, 7, AVRO, schema) == content


def test_a_union_takes_the_first_branch_that_fits_or_the_one_that_is_named() -> None:
    schema = avro(["null", "int", "long", "string"])
    assert encode(5, 7, AVRO, schema) == HEAD + bytes.fromhex("02 0a")
    assert encode({"long": 5}, 7, AVRO, schema) == HEAD + bytes.fromhex("04 0a")
    assert encode(2**40, 7, AVRO, schema)[5:6] == b"\x04"
    named = avro(["null", {"type": "record", "name": "P", "namespace": "n", "fields": [field("x", "int")]}])
    assert encode({"x": 1}, 7, AVRO, named) == encode({"n.P": {"x": 1}}, 7, AVRO, named) == HEAD + b"\2\2"


def test_a_missing_field_gets_its_default() -> None:
    assert encode({}, 7, AVRO, record(field("a", "int", default=3))) == HEAD + b"\6"


@pytest.mark.parametrize(
    ("schema", "value", "message"),
    [
        (PEOPLE, {"id": 1}, "the field tags is missing"),
        (PEOPLE, {"idd": 1}, "no field idd"),
        (record(field("a", {"type": "array", "items": "int"})), {"a": [1, "x"]}, r"a\[1\] must be"),
        (avro("int"), 2**31, "32 bits"),
        (avro("int"), True, "a whole number"),
        (avro("long"), 1.0, "a whole number"),
        (avro(logical("int", "date")), "tomorrow", "logical type date"),
        (avro("bytes"), "€", "bytes"),
        (avro("string"), "\ud800", "surrogate"),
        (avro(["null", "int"]), "x", "must be null.*; .*whole number"),
        (avro(logical("bytes", "decimal", precision=6, scale=2)), "0.001", "2 digits"),
        (avro(logical("bytes", "decimal", precision=6, scale=2)), "1e999999999", "decimal"),
        (avro(logical("fixed", "decimal", name="D", size=1, precision=2, scale=1)), "99", "1 bytes"),
    ],
)
def test_json_that_does_not_fit_an_avro_schema_is_refused_by_the_name_of_its_field(
    schema: ParsedSchema, value: object, message: str
) -> None:
    with pytest.raises(DoesNotFitSchema, match=message):
        encode(value, 7, AVRO, schema)


@pytest.mark.parametrize(
    ("schema", "payload"),
    [
        (avro("long"), ""),
        (avro("long"), "ff ff ff ff ff ff ff ff ff ff ff"),
        (avro("long"), "02 02"),  # Bytes remain after the value.
        (avro("string"), "06 61"),
        (avro("string"), "02 ff"),
        (avro(["null", "int"]), "04"),
        (avro({"type": "array", "items": "null"}), "fe ff ff ff ff ff ff ff ff 01"),
        (avro(logical("bytes", "decimal", precision=6, scale=2)), "fe ff ff ff 0f"),
    ],
)
def test_bytes_that_are_no_value_of_an_avro_schema_are_refused(schema: ParsedSchema, payload: str) -> None:
    with pytest.raises(DoesNotFitSchema):
        decode(HEAD + bytes.fromhex(payload), AVRO, schema)


def test_a_protobuf_message_is_found_by_its_place_in_the_file() -> None:
    click = {"at": "3", "page_name": "a", "path": [1, 2]}
    fields = "08 03 12 01 61 1a 02 01 02"
    assert decoded(HEAD + bytes.fromhex("00" + fields), PROTOBUF, PROTO) == click
    # the same message indexes in their long form
    assert decoded(HEAD + bytes.fromhex("02 00" + fields), PROTOBUF, PROTO) == click
    assert decoded(HEAD + bytes.fromhex("02 02 0a 02 08 05"), PROTOBUF, PROTO) == {"line": {"count": 5}}
    assert decoded(HEAD + bytes.fromhex("04 02 00 08 05"), PROTOBUF, PROTO) == {"count": 5}
    assert encode(click, 7, PROTOBUF, PROTO) == HEAD + bytes.fromhex("00" + fields)
    assert decoded(HEAD + b"\0", PROTOBUF, PROTO) == {"at": "0", "page_name": "", "path": []}


@pytest.mark.parametrize(
    "payload", ["", "80", "02 06", "02 01", "06 02 00 00", "01", "ff ff ff ff ff 0f", "00 08", "00 0a ff"]
)
def test_bytes_that_are_no_message_are_refused(payload: str) -> None:
    with pytest.raises(SchemaValueError):
        decode(HEAD + bytes.fromhex(payload), PROTOBUF, PROTO)


@pytest.mark.parametrize("value", [{"unknown": 1}, {"at": "x"}, {"at": 1e400}, 5, [1]])
def test_json_that_is_no_message_is_refused(value: object) -> None:
    with pytest.raises(DoesNotFitSchema, match=r"it is not a shop\.Click"):
        encode(value, 7, PROTOBUF, PROTO)


def test_json_is_validated_before_it_is_written() -> None:
    money = json.dumps({"type": "object", "properties": {"cents": {"type": "integer"}}, "required": ["cents"]})
    schema = parse(
        JSON,
        json.dumps({"type": "object", "properties": {"price": {"$ref": "money.json"}}}),
        [(Reference("money.json", "money", 1), money)],
    )
    good = {"price": {"cents": 5}}
    assert encode(good, 7, JSON, schema) == HEAD + b'{"price":{"cents":5}}'
    assert decoded(HEAD + b'{"price": {"cents": 5}}', JSON, schema) == good
    with pytest.raises(DoesNotFitSchema, match=r"\$\.price.*'cents' is a required property"):
        encode({"price": {}}, 7, JSON, schema)
    with pytest.raises(DoesNotFitSchema, match="neither NaN nor infinite numbers"):
        encode({"more": float("inf")}, 7, JSON, schema)
    with pytest.raises(DoesNotFitSchema, match="it is not JSON"):
        decode(HEAD + b"{", JSON, schema)


def test_json_stays_as_it_was_written_on_one_line() -> None:
    schema = parse(JSON, "{}")
    written = b'{"price": 10.00,\r\n "id": 9007199254740993, "id": 1, "text": "\\u00e9\\n\xc3\xa9"}\n'
    shown = '{"price": 10.00,   "id": 9007199254740993, "id": 1, "text": "\\u00e9\\né"}'
    assert decode(HEAD + written, JSON, schema) == shown
    assert decode(HEAD + b"1" * 10_000, JSON, schema) == "1" * 10_000  # more digits than Python converts by default
    with pytest.raises(DoesNotFitSchema, match="JSON has no NaN"):
        decode(HEAD + b"[NaN]", JSON, schema)


def test_a_json_text_is_encoded_as_it_is_written() -> None:
    schema = parse(JSON, json.dumps({"type": "object", "properties": {"price": {"type": "number"}}}))
    text = ' {"price": 10.00,  "id": 9007199254740993.0, "id": "é"}\n'
    assert encode_text(text.encode(), 7, JSON, schema) == HEAD + text.strip().encode()
    assert encode_text(text.encode("utf-16"), 7, JSON, schema) == HEAD + text.strip().encode()
    assert encode_text(b" 1", 7, AVRO, avro("long")) == HEAD + b"\x02"
    for unfit in (b'{"price": "x"}', b'{"price": NaN}', b'{"price": 1, "id": "\\ud800"}'):
        with pytest.raises(DoesNotFitSchema):
            encode_text(unfit, 7, JSON, schema)
    with pytest.raises(DoesNotFitSchema, match="nested too deeply"):
        encode_text(b"[" * 100_000, 7, JSON, schema)
    with pytest.raises(ValueError, match="Expecting value"):
        encode_text(b"x", 7, JSON, schema)


def test_longs_of_avro_are_whole_numbers_and_protobuf_writes_them_as_texts() -> None:
    assert decode(HEAD + bytes.fromhex("82 80 80 80 80 80 80 20"), AVRO, avro("long")) == "9007199254740993"
    click = HEAD + b"\0\x08" + bytes.fromhex("81 80 80 80 80 80 80 10")
    assert '"at": "9007199254740993"' in decode(click, PROTOBUF, PROTO)


NAMED = {"type": "record", "name": "Named", "fields": [{"name": "n" * 1_000, "type": "null"}]}
NULLS = {"type": "array", "items": "null"}
WIDE = parse(
    PROTOBUF,
    'syntax = "proto3"; import "google/protobuf/any.proto"; message Top { repeated Wide inside = 1;'
    " map<int32, Wide> by = 2; google.protobuf.Any any = 3; repeated int32 numbers = 4; }"
    "message Wide {" + " ".join(f"int32 f{number} = {number};" for number in range(1, 1001)) + "}",
)
IN_ANY = b"\x0a\x06x/Wide"


@pytest.mark.parametrize(
    ("schema_type", "schema", "payload"),
    [
        (AVRO, avro(NULLS), bytes.fromhex("80 89 7a 00")),  # a million nulls in four bytes
        (AVRO, record(field("a", NULLS), field("b", NULLS)), bytes.fromhex("90 4e 00 90 4e 00")),
        (AVRO, avro({"type": "array", "items": "int"}), b"\xd0\x0f" + bytes(1000) + b"\xd0\x0f" + bytes(1001)),
        (AVRO, avro({"type": "array", "items": NAMED}), b"\x14\0"),  # ten repetitions of a name of 1,000 characters
        (JSON, parse(JSON, "{}"), b"1" * 9_000),
        (PROTOBUF, WIDE, b"\0" + b"\x0a\0" * 2),
        (PROTOBUF, WIDE, b"\0" + b"\x12\0\x12\2\x08\1"),
        (PROTOBUF, WIDE, b"\0" + (b"\x1a\x08" + IN_ANY) + b"\x0a\0"),
        (PROTOBUF, WIDE, b"\0" + b"\x22\xd0\x0f" + bytes(2_000)),
    ],
)
def test_few_bytes_cannot_cause_more_work_than_the_budget(
    schema_type: str, schema: ParsedSchema, payload: bytes
) -> None:
    with pytest.raises(TooMuchToDecode):
        decode(HEAD + payload, schema_type, schema, DecodingBudget(values=1_999, characters=8_000))
