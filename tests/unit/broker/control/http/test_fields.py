"""Tests that the JSON decoder in Python, which parses large bodies of control calls in a thread, agrees with the
decoder in C."""

import json

import pytest

from odradek.broker.control.http.fields import PatientDecoder


@pytest.mark.parametrize(
    "text",
    [
        '{"a": [1, -2.5, 1e3, true, false, null, NaN], "b": {"c": "\\u00fc\\n\\ud83d\\ude00", "d": {}}, "e": []}',
        ' [ "x" , { } ] ',
        "7",
    ],
)
def test_the_decoder_in_python_reads_the_same_as_the_one_in_c(text: str) -> None:
    assert repr(PatientDecoder().decode(text)) == repr(json.loads(text))


@pytest.mark.parametrize("text", ["", "{", '{"a" 1}', "[1,]", "{} {}", '"\t"'])
def test_the_decoder_in_python_refuses_the_same(text: str) -> None:
    with pytest.raises(json.JSONDecodeError) as in_c:
        json.loads(text)
    with pytest.raises(json.JSONDecodeError) as in_python:
        PatientDecoder().decode(text)
    assert in_python.value.pos == in_c.value.pos


def test_the_decoder_in_python_gives_up_where_values_are_nested_too_deeply() -> None:
    with pytest.raises(RecursionError):
        PatientDecoder().decode("[" * 100_000)
