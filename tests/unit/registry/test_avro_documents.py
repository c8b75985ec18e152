"""Tests that an Avro schema with references becomes a schema without references. Each type from a referenced schema is
defined where it is first used."""

from __future__ import annotations

import json
from typing import Any

import pytest

from odradek.registry.avro_documents import full_name_of, self_contained


def record(name: str, *types: object, **more: str) -> dict[str, Any]:
    fields = [{"name": f"f{number}", "type": each} for number, each in enumerate(types)]
    return {"type": "record", "name": name, **more, "fields": fields}


def contained(schema: object, *references: object) -> Any:
    return self_contained(json.dumps(schema), [json.dumps(each) for each in references])


def test_a_schema_without_references_keeps_its_properties() -> None:
    moment = {"type": "long", "logicalType": "timestamp-millis"}
    schema = record("Order", "int", moment, {"type": "map", "values": moment}, doc="An order.", namespace="shop")
    schema["fields"][0]["default"] = 7
    assert contained(schema) == schema


def test_the_first_use_of_a_name_becomes_its_definition() -> None:
    money = record("Money", "long", namespace="shop")
    found = contained(record("shop.Order", "Money", ["null", "shop.Money"]), money)
    assert found["fields"][0]["type"] == money
    assert found["fields"][1]["type"] == ["null", "shop.Money"]


def test_references_of_references_are_defined_too() -> None:
    currency = {"type": "enum", "name": "shop.Currency", "symbols": ["EUR"]}
    money = record("shop.Money", "Currency")
    found = contained(record("shop.Order", "Money"), currency, money)
    assert found["fields"][0]["type"]["fields"][0]["type"] == {**currency, "name": "Currency", "namespace": "shop"}


def test_a_type_that_was_used_before_its_definition_is_defined_once() -> None:
    outer = record("shop.Outer", record("Inner", "int"))
    inner, again = (each["type"] for each in contained(record("shop.Order", "Inner", "Outer"), outer)["fields"])
    assert inner["fields"][0]["type"] == "int"
    assert again["fields"][0]["type"] == "shop.Inner"


def test_a_record_may_contain_itself() -> None:
    node = record("Node", ["null", "Node"])
    assert contained(node)["fields"][0]["type"] == ["null", "Node"]
    assert contained(record("Tree", "Node"), node)["fields"][0]["type"]["fields"][0]["type"] == ["null", "Node"]


def test_a_type_without_a_namespace_keeps_none_inside_a_namespace() -> None:
    found = contained(record("shop.Order", "Plain", {"type": "array", "items": "Plain"}), record("Plain", "int"))
    assert (found["fields"][0]["type"]["name"], found["fields"][0]["type"]["namespace"]) == ("Plain", "")
    assert found["fields"][1]["type"]["items"] == "Plain"


@pytest.mark.parametrize(("namespace", "name"), [("", "Plain"), (None, "shop.Plain")])
def test_an_empty_namespace_of_a_definition_means_none_and_null_means_the_enclosing_one(
    namespace: str | None, name: str
) -> None:
    plain = record("Plain", "int") | {"namespace": namespace}
    found = contained(record("Order", "Box", name, namespace="shop"), record("Box", plain, namespace="shop"))
    assert full_name_of(found["fields"][0]["type"]["fields"][0]["type"], "other") == name
    assert found["fields"][1]["type"] == name


def test_a_primitive_type_may_have_no_quotes() -> None:
    assert self_contained("string", []) == "string"
    assert self_contained('{"type": "string"}', []) == {"type": "string"}
    with pytest.raises(ValueError, match="Expecting"):
        self_contained("{", [])
