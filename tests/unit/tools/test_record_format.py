"""Tests records as text: one record per line in the format of kcat, or as JSON."""

import json

import pytest

from odradek.client.common.values import ConsumerRecord
from odradek.tools.commands.record_format import as_json, delimiter, formatted

RECORD = ConsumerRecord("t", 3, 41, 1_700_000_000_000, b"key", b"value", (("a", b"1"), ("b", None)))
NULLS = ConsumerRecord("t", 0, 0, 0, None, None, ())


@pytest.mark.parametrize(
    ("text", "record", "expected"),
    [
        (r"%t/%p/%o %k=%s\n", RECORD, b"t/3/41 key=value\n"),
        ("%T %K %S %h", RECORD, b"1700000000000 3 5 a=1,b=NULL"),
        ("%R%s", RECORD, b"\0\0\0\x05value"),
        (r"100%%\t\x41\\", RECORD, b"100%\tA\\"),
        ("%k %K %s %S %R", NULLS, b"NULL -1 NULL -1 \xff\xff\xff\xff"),
        ("", RECORD, b""),
    ],
)
def test_a_format_is_filled_with_the_record(text: str, record: ConsumerRecord, expected: bytes) -> None:
    assert formatted(text)(record) == expected


@pytest.mark.parametrize("text", ["%x", "100%"])
def test_a_field_that_does_not_exist_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="use %s"):
        formatted(text)


def test_json_replaces_bytes_that_are_not_text_and_keeps_nulls() -> None:
    line = as_json(RECORD._replace(value=b"\xff"))
    assert line.endswith(b"\n")
    assert json.loads(line) == {
        "topic": "t",
        "partition": 3,
        "offset": 41,
        "ts": 1_700_000_000_000,
        "headers": [["a", "1"], ["b", None]],
        "key": "key",
        "payload": "\ufffd",
    }
    assert json.loads(as_json(NULLS))["payload"] is None


def test_a_part_that_is_json_keeps_its_spelling_inside_the_json_of_the_record() -> None:
    number, twice = b"9007199254740993.0", '{"id": 10.00, "id": 1e2, "é": null}'.encode()
    line = as_json(RECORD._replace(key=number, value=twice), frozenset({"key", "value"}))
    assert line.endswith(b', "key": ' + number + b', "payload": ' + twice + b"}\n")
    assert json.loads(line)["offset"] == 41
    null = as_json(NULLS, frozenset({"key", "value"}))
    assert (json.loads(null)["key"], json.loads(null)["payload"]) == (None, None)
    assert as_json(RECORD, frozenset({"key"})).endswith(b', "key": key, "payload": "value"}\n')


@pytest.mark.parametrize(("text", "expected"), [(":", b":"), (r"\t", b"\t"), ("%", b"%"), (r"\x00", b"\0")])
def test_delimiters_are_text_with_escapes(text: str, expected: bytes) -> None:
    assert delimiter(text) == expected


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (b'{"id":9007199254740993,"id":10.00}', b'{\n  "id": 9007199254740993,\n  "id": 10.00\n}'),
        (b"text", b"text"),
        (b"\xff{}", b"\xff{}"),
        (None, b"NULL"),
    ],
)
def test_json_is_indented_as_it_was_written(value: bytes | None, shown: bytes) -> None:
    assert formatted("%J")(ConsumerRecord("t", 0, 0, 0, None, value, ())) == shown
