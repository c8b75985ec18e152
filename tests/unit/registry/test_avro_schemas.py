"""Tests the canonical text of Avro schemas."""

from __future__ import annotations

import json

import pytest

from odradek.registry.avro_schemas import parse

PLAIN = '{"type":"record","name":"Plain","namespace":"","fields":[{"name":"inner","type":%s}]}'
ORDER = '{"type":"record","name":"Order","namespace":"shop","fields":[{"name":"plain","type":%s}]}'
KIND = '{"type":"enum","name":"Kind","symbols":["A"]}'


def test_a_type_without_a_namespace_keeps_none_inside_a_namespace() -> None:
    text = ORDER % PLAIN % KIND
    assert parse(text, ()).canonical == text
    assert parse(text, ()).normalized() == text


@pytest.mark.parametrize("namespace", [None, "shop"])
def test_a_namespace_that_is_null_or_the_enclosing_one_is_left_out(namespace: str | None) -> None:
    kind = {"type": "enum", "name": "Kind", "namespace": namespace, "symbols": ["A"]}
    assert parse(ORDER % json.dumps(kind), ()).canonical == ORDER % KIND
