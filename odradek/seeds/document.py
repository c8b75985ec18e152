"""Turns a seed into a plan. Every error names the field and, if the seed is text, the line."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Collection, Iterator, Mapping
from datetime import UTC, datetime
from enum import Enum
from typing import Final, TypeVar

from odradek.protocol.acls import ANY_HOST, CLUSTER_NAME, Operation, PatternType, Permission, ResourceType
from odradek.protocol.scram import MAX_ITERATIONS, MIN_ITERATIONS, SCRAM_MECHANISMS, ScramMechanism
from odradek.registry.schemas import AVRO, MODULES, PROTOBUF, Reference, SchemaText
from odradek.seeds.plan import (
    DEFAULT,
    JsonContent,
    Place,
    SeedAcl,
    SeedGroup,
    SeedOffset,
    SeedPlan,
    SeedRecord,
    SeedSchema,
    SeedTopic,
    SeedUser,
)
from odradek.seeds.tree import Node, read_json, read_value, read_yaml

E = TypeVar("E", bound=Enum)

PARTS: Final = ("key", "value")  # the parts of a record that can have a schema
INT_32: Final = 2**31 - 1
INT_64: Final = 2**63 - 1
RESOURCES: Final = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactional_id": ResourceType.TRANSACTIONAL_ID,
    "delegation_token": ResourceType.DELEGATION_TOKEN,
    "user": ResourceType.USER,
}
# Values that are valid only in the filters of ACL requests.
ONLY_IN_FILTERS: Final = frozenset({"UNKNOWN", "ANY", "MATCH"})


def parse_seed(text: str, file: str) -> SeedPlan:
    """Parses a seed as YAML if the file name ends in .yaml or .yml, otherwise as JSON. Raises SeedError."""
    is_yaml = file.endswith((".yaml", ".yml"))
    return plan_of(read_yaml(text, Place(file)) if is_yaml else read_json(text, Place(file)))


def plan_of_field(value: object, name: str) -> SeedPlan:
    """Returns the plan of a seed in the field `name` of a JSON document. Raises SeedError.

    value  the seed, either as an object or as text, which is JSON if its first character is {, otherwise YAML
    """
    root = Place(field=name)
    if not isinstance(value, str):
        return plan_of(read_value(value, root))
    return plan_of(read_json(value, root) if value.lstrip().startswith("{") else read_yaml(value, root))


def plan_of(root: Node) -> SeedPlan:
    """Returns the plan that a document describes. Raises SeedError."""
    fields = _fields(root, ("schemas", "topics", "groups", "users", "acls"))
    plan = SeedPlan(
        schemas=tuple(_schema(each) for each in _rows(fields.get("schemas"))),
        groups=tuple(_group(each) for each in _rows(fields.get("groups"))),
        users=tuple(_user(each) for each in _rows(fields.get("users"))),
        acls=tuple(acl for each in _rows(fields.get("acls")) for acl in _acls(each)),
    )
    return plan.with_topics(tuple(_topic(each) for each in _rows(fields.get("topics"))))


def _schema(node: Node) -> SeedSchema:
    fields = _fields(node, ("subject", "type", "schema", "references"))
    for name in ("subject", "schema"):
        if name not in fields:
            raise node.place.error(f"{name} is missing")
    kind = _text(fields["type"]).upper() if "type" in fields else AVRO
    if kind not in MODULES:
        raise fields["type"].place.rule_error(f"be one of {', '.join(MODULES)}")
    given = fields["schema"]
    if isinstance(given.value, str):
        text = given.value
    elif kind == PROTOBUF:
        raise given.place.rule_error("be the text of a .proto file")
    else:
        text = _json(given)
    references = tuple(_reference(each) for each in _rows(fields.get("references")))
    return SeedSchema(_text(fields["subject"]), SchemaText(kind, text, references), node.place)


def _reference(node: Node) -> Reference:
    fields = _fields(node, ("name", "subject", "version"))
    for name in ("name", "subject"):
        if name not in fields:
            raise node.place.error(f"{name} is missing")
    return Reference(_text(fields["name"]), _text(fields["subject"]), _integer(fields.get("version"), 1, INT_32))


def _topic(node: Node) -> SeedTopic:
    fields = _fields(node, ("name", "partitions", "replicas", "settings", "key_schema", "value_schema", "records"))
    settings = fields.get("settings")
    subjects = {part: _text(fields[f"{part}_schema"]) for part in PARTS if f"{part}_schema" in fields}
    return SeedTopic(
        name=_name(node, fields),
        partitions=_integer(fields.get("partitions"), 1, INT_32, DEFAULT),
        replicas=_integer(fields.get("replicas"), 1, INT_32, DEFAULT),
        settings=() if settings is None else tuple((name, _setting(each)) for name, each in _mapping(settings)),
        records=tuple(_record(each, subjects) for each in _rows(fields.get("records"))),
        place=node.place,
    )


def _setting(node: Node) -> str:
    if isinstance(node.value, bool):
        return "true" if node.value else "false"
    if isinstance(node.value, str | int | float):
        return str(node.value)
    raise node.place.rule_error("be a string, a number, true or false")


def _record(node: Node, subjects: Mapping[str, str]) -> SeedRecord:
    """Returns the record that a node describes.

    subjects  the subjects of the schemas that encode the topic's keys and values, keyed by "key" and "value"
    """
    names = ("key", "key_base64", "value", "value_base64", "headers", "timestamp", "partition")
    fields = _fields(node, names)
    headers = fields.get("headers")
    partition = fields.get("partition")
    return SeedRecord(
        key=_content(fields, "key", subjects.get("key")),
        value=_content(fields, "value", subjects.get("value")),
        headers=() if headers is None else tuple(_headers(headers)),
        timestamp_ms=_timestamp(fields.get("timestamp")),
        partition=None if partition is None else _integer(partition, 0, INT_32),
        place=node.place,
    )


def _content(fields: dict[str, Node], name: str, subject: str | None) -> bytes | JsonContent | None:
    """Returns a key or a value as bytes: decoded base64, a string in UTF-8, or the JSON text of any other value. If
    the topic has a schema for its keys or values, returns JSON that the broker will encode."""
    plain, encoded = fields.get(name), fields.get(f"{name}_base64")
    if plain is not None and encoded is not None:
        raise encoded.place.error(f"a record has either {name} or {name}_base64, not both")
    if encoded is not None:
        try:
            return base64.b64decode(_text(encoded), validate=True)
        except (binascii.Error, ValueError):
            raise encoded.place.rule_error("be base64") from None
    if plain is None or plain.value is None:
        return None
    if subject is not None:
        return JsonContent(subject, _json(plain), plain.place)
    return _utf8(plain, plain.value if isinstance(plain.value, str) else _json(plain))


def _json(node: Node) -> str:
    try:
        return json.dumps(node.plain(), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except ValueError:
        raise node.place.error("JSON supports neither NaN nor infinity") from None


def _headers(node: Node) -> Iterator[tuple[str, bytes | None]]:
    """Yields the headers in a mapping. A header that occurs several times has a list as its value."""
    for name, each in _mapping(node):
        for value in each.value if isinstance(each.value, list) else [each]:
            yield name, None if value.value is None else _utf8(value, _text(value))


def _timestamp(node: Node | None) -> int | None:
    if node is None:
        return None
    if isinstance(node.value, str):
        try:
            found = datetime.fromisoformat(node.value)
        except ValueError:
            raise node.place.rule_error("be a number of milliseconds, or a time such as 2026-01-31T12:00:00Z") from None
        aware = found if found.tzinfo is not None else found.replace(tzinfo=UTC)
        return max(int(aware.timestamp() * 1000), 0)
    return _integer(node, 0, INT_64)


def _group(node: Node) -> SeedGroup:
    fields = _fields(node, ("name", "offsets"))
    if "offsets" not in fields:
        raise node.place.error("offsets is missing")
    offsets = [
        SeedOffset(topic, _partition(each, text), _integer(each, 0, INT_64), each.place)
        for topic, partitions in _mapping(fields["offsets"])
        for text, each in _mapping(partitions)
    ]
    return SeedGroup(_name(node, fields), tuple(offsets), node.place)


def _partition(node: Node, text: str) -> int:
    if not (text.isascii() and text.isdecimal()) or int(text) > INT_32:
        raise node.place.error(
            f"write offsets as TOPIC: {{PARTITION: OFFSET}}; {text!r} is not the number of a partition"
        )
    return int(text)


def _user(node: Node) -> SeedUser:
    fields = _fields(node, ("name", "password", "mechanism", "iterations"))
    if "password" not in fields:
        raise node.place.error("password is missing")
    mechanism = ScramMechanism.SHA_512
    if "mechanism" in fields:
        found = SCRAM_MECHANISMS.get(_text(fields["mechanism"]))
        if found is None:
            raise fields["mechanism"].place.rule_error(f"be {' or '.join(SCRAM_MECHANISMS)}")
        mechanism = found
    iterations = _integer(fields.get("iterations"), MIN_ITERATIONS, MAX_ITERATIONS, MIN_ITERATIONS)
    return SeedUser(_name(node, fields), _text(fields["password"]), mechanism, iterations, node.place)


def _acls(node: Node) -> Iterator[SeedAcl]:
    fields = _fields(node, (*RESOURCES, "cluster", "principal", "operations", "permission", "pattern", "host"))
    for name in ("principal", "operations"):
        if name not in fields:
            raise node.place.error(f"{name} is missing")
    named = [name for name in (*RESOURCES, "cluster") if name in fields]
    if len(named) != 1:
        raise node.place.error(
            f"an ACL needs exactly one resource: {', '.join(RESOURCES)} with a name, or cluster: true"
        )
    resource = fields[named[0]]
    if named[0] == "cluster":
        if resource.value is not True:
            raise resource.place.rule_error("be true")
        resource_type, name = ResourceType.CLUSTER, CLUSTER_NAME
    else:
        resource_type, name = RESOURCES[named[0]], _text(resource)
    operations = fields["operations"]
    for each in operations.value if isinstance(operations.value, list) else [operations]:
        yield SeedAcl(
            resource_type,
            name,
            _text(fields["principal"]),
            _member(Operation, each),
            _member(Permission, fields["permission"]) if "permission" in fields else Permission.ALLOW,
            _member(PatternType, fields["pattern"]) if "pattern" in fields else PatternType.LITERAL,
            _text(fields["host"]) if "host" in fields else ANY_HOST,
            each.place,
        )


def _member(kind: type[E], node: Node) -> E:
    text = node.value.upper().replace("-", "_") if isinstance(node.value, str) else ""
    if text not in kind.__members__ or text in ONLY_IN_FILTERS:
        allowed = [name for name in kind.__members__ if name not in ONLY_IN_FILTERS]
        raise node.place.rule_error(f"be one of {', '.join(allowed)}")
    return kind[text]


# The following functions are shared by all parts of the document.


def _fields(node: Node, allowed: Collection[str]) -> dict[str, Node]:
    if not isinstance(node.value, dict):
        raise node.place.rule_error(f"be an object with the fields {', '.join(allowed)}")
    for name, each in node.value.items():
        if name not in allowed:
            raise each.place.error(f"there is no such field; the fields are {', '.join(allowed)}")
    return node.value


def _mapping(node: Node) -> list[tuple[str, Node]]:
    if not isinstance(node.value, dict):
        raise node.place.rule_error("be an object")
    return list(node.value.items())


def _rows(node: Node | None) -> list[Node]:
    if node is None:
        return []
    if not isinstance(node.value, list):
        raise node.place.rule_error("be a list")
    return node.value


def _name(node: Node, fields: dict[str, Node]) -> str:
    if "name" not in fields:
        raise node.place.error("name is missing")
    name = _text(fields["name"])
    if not name:
        raise fields["name"].place.error("name is empty")
    return name


def _text(node: Node) -> str:
    if not isinstance(node.value, str):
        raise node.place.rule_error("be a string; a string that looks like a number needs quotes")
    return node.value


def _utf8(node: Node, text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise node.place.error("the string has half of a surrogate pair, which UTF-8 cannot encode") from None


def _integer(node: Node | None, least: int, most: int, default: int = DEFAULT) -> int:
    if node is None:
        return default
    if not isinstance(node.value, int) or isinstance(node.value, bool) or not least <= node.value <= most:
        raise node.place.rule_error(f"be a number from {least} to {most}")
    return node.value
