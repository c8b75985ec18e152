"""Encodes and decodes complete messages with the second codec, `odradek.protocol.reference`, as trees of plain
values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from odradek.protocol.reference import structure
from odradek.protocol.struct import Buffer, Message, Struct


def parse(module: str, version: int, data: Buffer, position: int = 0) -> dict[str, Any]:
    """Returns the tree of one message, e.g. `parse("produce_request", 9, body)`. Raises construct.ConstructError."""
    tree: dict[str, Any] = structure(module, version).parse(bytes(memoryview(data)[position:]))
    return tree


def build(module: str, version: int, tree: Mapping[str, Any]) -> bytes:
    """Returns the bytes of a tree, without fields that the version lacks. Raises construct.ConstructError."""
    written: bytes = structure(module, version).build(tree)
    return written


def tree_of(struct: Struct) -> dict[str, Any]:
    """Returns a message's tree, with the fields of all versions."""
    return {name: _plain(getattr(struct, name)) for name in struct.__slots__}


def _plain(value: Any) -> Any:
    if isinstance(value, Struct):
        return tree_of(value)
    if isinstance(value, list):
        return [_plain(element) for element in value]
    return bytes(value) if isinstance(value, bytearray | memoryview) else value


def module_of(message: Message) -> str:
    return type(message).__module__.rpartition(".")[2]
