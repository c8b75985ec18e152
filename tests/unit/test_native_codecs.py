"""Tests that the codecs written by native/codecs.py for mypyc work like the codecs generated at run time.

In the compiled variant, tests/unit/protocol also runs the compiled codecs and compares them with a reference codec.
"""

import tomllib
from collections.abc import Callable
from random import Random
from types import FunctionType
from typing import Any

import pytest

from native.codecs import with_codecs
from odradek.protocol.codec import Read, decode_from, encode, reader, writer
from odradek.protocol.errors import MalformedMessage, UnsupportedVersion
from odradek.protocol.messages import message_class
from odradek.protocol.schema import load
from odradek.protocol.variant import COMPILED, variant
from tests.support.message_values import RandomChoices, build_message, versions
from tests.support.oracle import REPOSITORY
from tests.support.reference_codec import tree_of

MODULES: list[str] = tomllib.loads((REPOSITORY / "compiled.toml").read_text())["codecs"]


def written(module: str) -> dict[str, Any]:
    text = with_codecs((REPOSITORY / f"odradek/protocol/messages/{module}.py").read_text(), module)
    names: dict[str, Any] = {"__name__": module}
    exec(compile(text, f"<{module}>", "exec"), names)
    return names


def outcome(act: Callable[[], Any]) -> Any:
    try:
        return act()
    except (MalformedMessage, UnsupportedVersion) as error:
        return type(error), str(error)


def assert_reads_agree(read: Read, module: str, version: int, data: bytes | memoryview) -> None:
    def parsed(found: tuple[Any, int]) -> tuple[object, int]:
        return tree_of(found[0]), found[1]

    known = outcome(lambda: parsed(decode_from(message_class(module), version, data)))
    assert outcome(lambda: parsed(read(data, 0))) == known


@pytest.mark.parametrize("module", MODULES)
def test_the_generated_codec_agrees_with_the_generic_one(module: str) -> None:
    names, schema = written(module), load(module)
    for version in (version for name, version in versions() if name == module):
        for seed in range(3):
            message = build_message(module, version, RandomChoices(Random(f"{module} {version} {seed}"), longest=2))
            data = encode(message, version)
            if schema.kind != "response":
                read: Read = names[f"read_{version}"]
                assert_reads_agree(read, module, version, data)
                assert_reads_agree(read, module, version, memoryview(data))
                for at in range(min(len(data), 300)):
                    assert_reads_agree(read, module, version, data[:at])
                    assert_reads_agree(read, module, version, data[:at] + b"\xff" + data[at + 1 :])
            if schema.kind != "request":
                chunks: list[Any] = []
                names[f"write_{version}"](message, bytearray(), chunks)
                assert b"".join(chunks) == data


@pytest.mark.parametrize("module", MODULES)
def test_the_generated_and_the_generic_codec_refuse_the_same_values(module: str) -> None:
    names, schema = written(module), load(module)
    if schema.kind == "request":
        return
    for version in (version for name, version in versions() if name == module):
        for latest in (version for name, version in versions() if name == module):
            message = build_message(module, latest, RandomChoices(Random(f"{module} {version} {latest}"), longest=1))
            known = outcome(lambda message=message, version=version: encode(message, version))  # type: ignore[misc]
            chunks: list[Any] = []
            write = names[f"write_{version}"]
            result = outcome(lambda write=write, chunks=chunks, message=message: write(message, bytearray(), chunks))  # type: ignore[misc]
            assert (b"".join(chunks) if result is None else result) == known


@pytest.mark.parametrize("module", MODULES)
def test_the_compiled_variant_uses_native_codecs(module: str) -> None:
    kind = load(module).kind
    for version in (version for name, version in versions() if name == module):
        used = writer(message_class(module), version) if kind == "response" else reader(message_class(module), version)
        assert isinstance(used, FunctionType) == (variant() != COMPILED)
