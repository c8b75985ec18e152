"""Tests that the message classes in the repository are those generated from the schemas."""

from odradek.protocol.codec import decode, encode
from odradek.protocol.generate import MESSAGES, generate_sources
from odradek.protocol.messages import MODULES, REQUESTS, RESPONSES, message_class, request_class, response_class
from odradek.protocol.schema import load


def test_the_generated_modules_are_up_to_date() -> None:
    checked_in = {path.name: path.read_text() for path in MESSAGES.glob("*.py")}
    assert checked_in == generate_sources(), "run python -m odradek.protocol.generate"


def test_every_request_has_a_response() -> None:
    assert REQUESTS.keys() == RESPONSES.keys()
    for key in REQUESTS:
        assert request_class(key).API_KEY == response_class(key).API_KEY == key
        assert request_class(key).MAX_VERSION == response_class(key).MAX_VERSION


def test_a_message_of_defaults_can_be_written_at_every_version() -> None:
    for module in MODULES:
        message = message_class(module)()
        for version in load(module).version_range():
            assert decode(type(message), version, encode(message, version)) == message


def test_lists_and_structs_of_defaults_are_not_shared() -> None:
    produce = request_class(0)
    one, other = produce(), produce()
    one.topic_data.append(None)  # type: ignore[attr-defined]
    assert one != other
