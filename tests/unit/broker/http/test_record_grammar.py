"""Tests that a record in JSON is converted to bytes, and that the JSON of a fetched record can be sent again."""

import json

import pytest

from odradek.broker.api.schema_values import DecodedContent
from odradek.broker.http.page.record_grammar import parse_record, record_json
from odradek.protocol.errors import KafkaError
from odradek.protocol.records import Headers, Record


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({}, None),
        ({"value": None}, None),
        ({"value": ""}, b""),
        ({"value": "text"}, b"text"),
        ({"value": "ü"}, "ü".encode()),
        ({"value": 1}, b"1"),
        ({"value": True}, b"true"),
        ({"value": {"a": [1, "ü"]}}, '{"a":[1,"ü"]}'.encode()),
        ({"value_base64": "/w=="}, b"\xff"),
    ],
)
def test_a_text_is_its_bytes_and_other_json_is_its_text(value: dict[str, object], expected: bytes | None) -> None:
    assert parse_record(value).value.data == expected


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        (None, ()),
        ({"a": "1", "c": None}, (("a", b"1"), ("c", None))),
        ([["a", "1"], ["a", "2"]], (("a", b"1"), ("a", b"2"))),
        ([["a", {"base64": "/w=="}]], (("a", b"\xff"),)),
    ],
)
def test_headers_are_an_object_or_pairs(headers: object, expected: Headers) -> None:
    assert parse_record({"headers": headers}).headers == expected


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ([], "must be a JSON object"),
        ({"valeu": "x"}, "Valeu is not a field of a record; the fields are headers, key"),
        ({"value": "x", "value_base64": "eA=="}, "cannot both be given"),
        ({"value_base64": "?"}, "must be text in base64"),
        ({"headers": {"a": 1}}, "must be an object whose values are strings"),
        ({"headers": "a"}, "must be an object whose values are strings"),
        ({"partition": -1}, "must be a whole number from 0"),
        ({"timestamp": True}, "must be a whole number from 0"),
    ],
)
def test_an_invalid_record_is_refused_with_the_name_of_its_field(body: object, words: str) -> None:
    with pytest.raises(KafkaError, match=words):
        parse_record(body)
    with pytest.raises(KafkaError, match=r"^.*Records\[2\]"):
        parse_record(body, "records[2].")


@pytest.mark.parametrize("data", [None, b"", b"text", b"\xff\x00"])
def test_a_record_that_is_read_can_be_written_again(data: bytes | None) -> None:
    record = Record(7, 1000, data, data, (("a", data), ("a", b"1")))
    shown = json.loads(record_json(3, record))
    assert shown.pop("offset") == 7
    sent = parse_record(shown)
    assert (sent.partition, sent.timestamp) == (3, 1000)
    assert (sent.key.data, sent.value.data, sent.headers) == (data, data, record.headers)


def test_json_that_a_schema_decodes_is_in_the_record_as_it_is() -> None:
    record = Record(7, 1000, b"k", b"\xff", ())
    decoded = DecodedContent(3, "AVRO", "orders-value", 1, json='{"price": 10.00, "id": 9007199254740993}')
    text = record_json(0, record, {"key": "no schema", "value": decoded})
    assert '"value": {"price": 10.00, "id": 9007199254740993}' in text
    shown = json.loads(text)
    assert shown["value_schema"] == {"id": 3, "type": "AVRO", "subject": "orders-value", "version": 1}
    assert (shown["key"], shown["key_error"]) == ("k", "no schema")


def test_a_value_that_cannot_be_decoded_is_shown_as_it_is_with_the_reason() -> None:
    shown = json.loads(
        record_json(0, Record(7, 1000, None, b"\xff", ()), {"value": DecodedContent(3, error="unknown")})
    )
    assert (shown["value_base64"], shown["value_error"]) == ("/w==", "unknown")
    assert "value_schema" not in shown
