"""Tests that the schemas agree with the message definitions in Kafka 4.4.0's own jars, field by field."""

import json
import zipfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from odradek.protocol import kip_1289
from odradek.protocol.schema import INTEGERS, Field, Versions, all_modules, load
from tests.support.broker_process import REFERENCE
from tests.support.oracle import needs_kafka, run_kafka

pytestmark = needs_kafka

JARS = (
    "kafka-clients",
    "kafka-group-coordinator",
    "kafka-metadata",
    "kafka-raft",
    "kafka-share-coordinator",
    "kafka-storage",
    "kafka-transaction-coordinator",
)
NO_VERSION_LEFT = "none"  # valid versions of APIs that Kafka 4 removed
UNSET = object()
WITHOUT_A_SCHEMA = frozenset(
    {
        "AbortedTxn",  # an entry in the index of aborted transactions, which odradek/files/indexes.py reads and writes
    }
)
IN_NO_KAFKA = frozenset({"txn_share_acknowledge_request", "txn_share_acknowledge_response"})  # KIP-1289
MODULES = [module for module in all_modules() if module not in IN_NO_KAFKA]


@cache
def definitions(release: str) -> dict[str, dict[str, Any]]:
    """Returns the message definitions in a release's jars, by message name. Leaves out definitions without a valid
    version."""
    libs = Path(run_kafka("install", "--version", release).split()[-1])
    found: dict[str, dict[str, Any]] = {}
    for jar in JARS:
        (path,) = libs.glob(f"{jar}-[0-9]*.jar")
        with zipfile.ZipFile(path) as packed:
            for name in packed.namelist():
                if name.endswith(".json"):
                    lines = packed.read(name).decode().splitlines()
                    message = json.loads("\n".join(line for line in lines if not line.lstrip().startswith("//")))
                    if message["validVersions"] != NO_VERSION_LEFT:
                        found[message["name"]] = message
    return found


def fields_of(definition: Mapping[str, Any]) -> dict[str, list[Mapping[str, Any]]]:
    """Returns the fields of the message and of each of its structs. Kafka defines a struct within a field or in
    `commonStructs`."""
    found: dict[str, list[Mapping[str, Any]]] = {}

    def walk(name: str, fields: list[Mapping[str, Any]]) -> None:
        found[name] = fields
        for field in fields:
            if "fields" in field:
                walk(field["type"].removeprefix("[]"), field["fields"])

    walk(definition["name"], definition["fields"])
    for struct in definition.get("commonStructs", []):
        walk(struct["name"], struct["fields"])
    return found


def versions_of(text: str | None) -> Versions:
    return Versions.parse(None if text == "none" else text)


def default_of(field: Mapping[str, Any]) -> object:
    """Returns the field's default as a value, or UNSET if the field has the default of its type."""
    default, type_name = field.get("default", UNSET), field["type"]
    # In Kafka's definitions, JSON null means that there is no default, whereas the string "null" is a default.
    if default is UNSET or default is None or default == "":
        return UNSET
    if default == "null":
        return None
    if type_name == "bool":
        return str(default).lower() == "true"
    if type_name in INTEGERS:
        return int(str(default), 0)
    raise AssertionError(f"a default of an unforeseen kind: {field}")


def natural_default(field: Field) -> object:
    """Returns Kafka's default for a field without a default in its definition. For arrays, structs and records this is
    None, as in Odradek's schemas."""
    if field.is_array or field.is_struct or field.type == "records":
        return None
    if field.type in INTEGERS:
        return 0
    return {"bool": False, "float64": 0.0, "uuid": bytes(16), "string": "", "bytes": b""}[field.type]


def assert_same_field(ours: Field, theirs: Mapping[str, Any]) -> None:
    assert ours.name == theirs["name"]
    assert ours.type_name == theirs["type"]
    assert ours.versions == versions_of(theirs.get("versions") or theirs["taggedVersions"])
    assert ours.nullable == versions_of(theirs.get("nullableVersions"))
    assert ours.tag == theirs.get("tag")
    if "tag" in theirs:
        assert ours.versions == versions_of(theirs["taggedVersions"])
    assert ours.ignorable == theirs.get("ignorable", False)
    assert ours.map_key == theirs.get("mapKey", False)
    assert ours.flexible == (theirs.get("flexibleVersions") != "none")
    default = default_of(theirs)
    assert ours.default == (natural_default(ours) if default is UNSET else default)
    assert ours.default_is_empty == (default is UNSET and (ours.is_array or ours.is_struct))


def shared_with_kafka(structs: Mapping[str, tuple[Field, ...]]) -> dict[str, tuple[Field, ...]]:
    """Returns the structs without KIP-1289's private fields, which Kafka ignores, and without structs that only these
    fields use."""
    private = [field for fields in structs.values() for field in fields if (field.tag or 0) >= kip_1289.PRIVATE_TAGS]
    only_ours = {field.type for field in private}
    return {
        name: tuple(field for field in fields if field not in private)
        for name, fields in structs.items()
        if name not in only_ours
    }


def test_there_is_a_schema_for_every_message_and_no_other() -> None:
    assert {load(module).name for module in MODULES} == set(definitions(REFERENCE)) - WITHOUT_A_SCHEMA
    assert definitions(REFERENCE).keys() >= WITHOUT_A_SCHEMA


@pytest.mark.parametrize("module", MODULES)
def test_each_schema_agrees_with_kafkas_definition(module: str) -> None:
    schema = load(module)
    definition = definitions(REFERENCE)[schema.name]
    assert schema.kind == definition["type"]
    assert schema.key == definition.get("apiKey")
    assert schema.versions == versions_of(definition["validVersions"])
    assert schema.flexible == versions_of(definition["flexibleVersions"])
    assert schema.latest_version_unstable == definition.get("latestVersionUnstable", False)
    ours, theirs = shared_with_kafka({schema.name: schema.fields, **schema.structs}), fields_of(definition)
    assert ours.keys() == theirs.keys()
    for name, fields in ours.items():
        for our_field, their_field in zip(fields, theirs[name], strict=True):
            assert_same_field(our_field, their_field)
