"""The JSON schemas of the responses to control calls. Later versions may add fields but never remove any."""

from __future__ import annotations

from typing import Any, Final

from odradek.control_calls.rules import REPORTED_RULE

TEXT: Final[dict[str, Any]] = {"type": "string"}
NUMBER: Final[dict[str, Any]] = {"type": "integer"}
BOOLEAN: Final[dict[str, Any]] = {"type": "boolean"}
TEXTS: Final[dict[str, Any]] = {"type": "array", "items": TEXT}
EMPTY: Final[dict[str, Any]] = {"type": "object", "maxProperties": 0}
FACTS: Final[dict[str, Any]] = {"type": "object"}


def object_of(**properties: object) -> dict[str, Any]:
    """Returns the schema of an object that always has these properties."""
    return {"type": "object", "properties": properties, "required": [*properties]}


def list_of(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items}


CLUSTER: Final = object_of(
    id=TEXT,
    bootstrap=TEXT,
    nodes=list_of(object_of(id=NUMBER, host=TEXT, port=NUMBER, state={"enum": ["running", "stopped"]})),
    listeners=list_of(object_of(name=TEXT, protocol=TEXT, bootstrap=TEXT, mechanisms=TEXTS)),
    ca_certificate={"type": ["string", "null"]},
    schema_registry={"type": ["string", "null"], "description": "The URL of the schema registry, if it is enabled."},
    state={"enum": ["running", "crashed"]},
    emulates={"type": ["string", "null"]},
    checkpoints=TEXTS,
)
CREATED_CLUSTER: Final[dict[str, Any]] = {
    **CLUSTER,
    "properties": {
        **CLUSTER["properties"],
        "token": {"type": "string", "description": "The token that gives access to the calls of this cluster."},
        "client_certificates": {"type": "object", "additionalProperties": TEXT},
        "preset": {"type": "object", "description": "Facts about the rare state in which the cluster starts."},
    },
    "required": [*CLUSTER["required"], "token"],
}
RULES: Final = list_of(REPORTED_RULE)
HOLDS: Final = list_of(object_of(name=TEXT, waiting=NUMBER, who={"type": "array"}))
RELEASED: Final = object_of(released=NUMBER)
LEASE: Final = object_of(ttl_s={"type": ["integer", "null"]})
CLOCK: Final = object_of(now_ms=NUMBER, frozen=BOOLEAN)
PRESETS: Final = list_of(
    object_of(name=TEXT, text=TEXT, parameters=FACTS, correct={}, wrong={}),
)
ODDITIES: Final = object_of(seed=NUMBER, oddities=list_of(object_of(name=TEXT, percent=NUMBER, done=NUMBER)))
PAGE: Final = object_of(rows=list_of(FACTS), more=BOOLEAN)
REQUESTS: Final = list_of(FACTS)
