"""Tests that two codecs made from the same schemas agree: the compiled codec and a codec declared with construct."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.protocol.codec import decode, decode_from, encode
from odradek.protocol.frames import read_request_header
from odradek.protocol.messages import message_class, request_class
from tests.support.examples import examples
from tests.support.message_values import Choices, DrawnChoices, LargeChoices, RandomChoices, build_message, versions
from tests.support.oracle import exchanges, needs_oracle
from tests.support.reference_codec import build, module_of, parse, tree_of

VERSIONS = versions()
MODULES = sorted({module for module, _ in VERSIONS})


def assert_agreement(module: str, version: int, choices: Choices) -> None:
    message = build_message(module, version, choices)
    written = encode(message, version)
    assert written == build(module, version, tree_of(message))
    assert decode_from(message_class(module), version, written) == (message, len(written))
    assert parse(module, version, written) == tree_of(message)


@pytest.mark.parametrize("module", MODULES)
def test_every_message_agrees_with_the_reference_codec_at_every_version(module: str) -> None:
    for version in (version for name, version in VERSIONS if name == module):
        for seed in range(4):
            assert_agreement(module, version, RandomChoices(Random(f"{module} {version} {seed}")))
        assert_agreement(module, version, RandomChoices(Random(0), longest=0))


@pytest.mark.parametrize(
    "module", ["metadata_response", "fetch_response", "offset_fetch_response", "join_group_response"]
)
def test_arrays_with_lengths_of_two_bytes_agree_with_the_reference_codec(module: str) -> None:
    supported = [version for name, version in VERSIONS if name == module]
    for version in (supported[0], supported[-1]):
        assert_agreement(module, version, LargeChoices(Random(version), longest=200))


@settings(max_examples=examples(300))
@given(st.data())
def test_generated_values_agree_with_the_reference_codec(data: st.DataObject) -> None:
    module, version = data.draw(st.sampled_from(VERSIONS))
    assert_agreement(module, version, DrawnChoices(data.draw))


@needs_oracle
def test_every_recorded_request_agrees_with_the_reference_codec() -> None:
    for exchange in exchanges():
        if exchange.failed is None:
            request_type = request_class(exchange.key)
            body = exchange.request[read_request_header(exchange.request)[1] :]
            request = decode(request_type, exchange.version, body)
            tree = tree_of(request)
            assert parse(module_of(request), exchange.version, body) == tree, exchange
            assert build(module_of(request), exchange.version, tree) == encode(request, exchange.version), exchange
