"""Tests long strings in requests, which can have up to 32,767 bytes. Error messages and log lines quote only the start
of a string.

A string of 30,000 backslashes, which `repr` doubles, once produced an error message that was too long for any response.
The client received UNKNOWN_SERVER_ERROR, and the log received a traceback with the whole request.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from odradek.broker.api.served import SERVED
from odradek.broker.configuration.contradictions import STANDARD_AUTHORIZER
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages import request_class
from odradek.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from odradek.protocol.messages.metadata_response import MetadataResponse
from odradek.protocol.quoting import MAX_MESSAGE_LENGTH, MAX_QUOTED_LENGTH, quoted, shortened
from odradek.protocol.schema import Field, Schema, load
from odradek.protocol.struct import Message, Struct
from tests.support.in_process_broker import ConnectionClosed, InProcessBroker

LONGEST = 30_000
BACKSLASHES = "\\" * LONGEST
# Responses repeat names from the request where the protocol requires it. These fields contain the broker's own
# messages, which must be short.
WORDS = ("error_message", "error_string", "batch_index_error_message")


def long_request(api_key: ApiKey, version: int, text: str, number: int) -> Message:
    """Returns a request with one element in each array. Every string is `text`, and every number is `number`."""
    request = request_class(api_key.value)()
    assert isinstance(request, Message)
    schema = load(type(request).__module__.rpartition(".")[2])
    _fill(request, schema, schema.fields, version, text, number)
    return request


def _fill(struct: Struct, schema: Schema, fields: tuple[Field, ...], version: int, text: str, number: int) -> None:
    module = import_module(f"odradek.protocol.messages.{schema.module}")
    for field in fields:
        if version not in field.versions:
            continue
        if field.is_struct:
            value: object = getattr(module, field.type)()
            assert isinstance(value, Struct)
            _fill(value, schema, schema.structs[field.type], version, text, number)
        elif field.type == "string":
            value = text
        elif field.type == "bytes":
            value = text.encode()
        elif field.type in ("uuid", "records", "bool", "float64"):
            continue
        else:
            value = number
        setattr(struct, field.attribute, [value] if field.is_array else value)


def texts(struct: Struct) -> Iterator[tuple[str, object]]:
    for name in struct.__slots__:
        value = getattr(struct, name)
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, Struct):
                yield from texts(each)
            else:
                yield name, each


def log_text(caplog: pytest.LogCaptureFixture) -> str:
    return "\n".join(map(caplog.handler.format, caplog.records))


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessBroker]:
    with InProcessBroker(tmp_path_factory.mktemp("long-strings"), {}) as in_process:
        yield in_process


@pytest.mark.parametrize("number", [0, 1, 2])
@pytest.mark.parametrize("api_key", SERVED, ids=lambda each: each.name)
def test_a_request_of_long_strings_is_answered_in_few_words(
    broker: InProcessBroker, caplog: pytest.LogCaptureFixture, api_key: ApiKey, number: int
) -> None:
    version = SERVED[api_key].max_version
    request = long_request(api_key, version, BACKSLASHES, number)
    try:
        said = list(texts(broker.ask(broker.connection("User:alice"), request, version)))
    except ConnectionClosed as closed:
        said = [("error_message", str(closed))]
    assert [text for name, text in said if name in WORDS and len(str(text)) > 2 * MAX_MESSAGE_LENGTH] == []
    # A bug would cause a traceback and the error UNKNOWN_SERVER_ERROR.
    assert "Traceback" not in log_text(caplog)
    assert len(log_text(caplog)) < 5 * MAX_MESSAGE_LENGTH


def test_a_refusal_is_shortened_wherever_it_is_raised() -> None:
    refusal = KafkaError(ErrorCode.INVALID_REQUEST, f"there is no {BACKSLASHES}, since it is too long")
    assert refusal.message is not None
    assert len(refusal.message) < MAX_MESSAGE_LENGTH + 100
    assert refusal.message.startswith("there is no \\")
    assert refusal.message.endswith(", since it is too long")
    assert str(refusal) == f"INVALID_REQUEST: {refusal.message}"


def test_a_quoted_value_shows_the_beginning_of_each_part_and_how_much_there_is() -> None:
    assert quoted("pay") == "'pay'"
    assert quoted(BACKSLASHES) == f"{BACKSLASHES[:MAX_QUOTED_LENGTH]!r}…(30000 characters)"
    assert quoted(bytes(1_000)) == f"{bytes(MAX_QUOTED_LENGTH)!r}…(1000 bytes)"
    assert quoted([1, 2, 3, 4, 5]) == "[1, 2, 3, …(5 elements)]"
    assert quoted(None) == "None"
    request = MetadataRequest(topics=[MetadataRequestTopic(name=BACKSLASHES)] * 100_000)
    assert len(quoted(request)) < 10 * MAX_QUOTED_LENGTH
    assert "…(100000 elements)" in quoted(request)


def test_a_shortened_text_says_how_much_is_left_out() -> None:
    assert shortened("a" * 10, 10) == "a" * 10
    assert shortened("abcdefghijkl", 8) == "abcdef…(4 characters left out)…kl"


def test_a_request_for_very_many_forbidden_topics_writes_few_lines(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:admin"}
    with InProcessBroker(tmp_path, settings) as broker, caplog.at_level(logging.INFO):
        names = [f"{'x' * 240}-{number}" for number in range(2_000)]
        request = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names])
        answer = broker.answer(broker.connection("User:alice"), request, 12, MetadataResponse)
        assert {each.error_code for each in answer.topics} == {ErrorCode.TOPIC_AUTHORIZATION_FAILED.value}
        lines = [each.getMessage() for each in caplog.records]
    single = [line for line in lines if line.startswith("Principal = User:alice is Denied")]
    assert len(single) == 100
    assert [line.split(" of Principal")[0] for line in lines if line not in single] == ["The request Metadata"] * 2
    assert lines[100].startswith(
        "The request Metadata of Principal = User:alice from host = 127.0.0.1 names so many resources"
    )
    assert lines[101].endswith(": 1000 decisions so far")
    assert sum(map(len, lines)) < 70_000
