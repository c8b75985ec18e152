"""The JSON schemas of a fault rule, as used in tests' requests and the broker's responses."""

from __future__ import annotations

from typing import Any, Final

COUNTS: Final[dict[str, Any]] = {
    "after": {"type": "integer", "minimum": 0, "description": "How many matches the rule lets pass before it acts."},
    "every": {
        "type": "integer",
        "minimum": 1,
        "description": "After the first `after` matches, the rule acts on every nth match.",
    },
    "times": {
        "type": ["integer", "null"],
        "minimum": 1,
        "description": "How many times the rule acts. If it is missing, the rule acts on every match.",
    },
    "probability": {
        "type": "number",
        "minimum": 0,
        "maximum": 1,
        "description": "The probability that the rule acts on a match.",
    },
    "seed": {"type": "integer", "minimum": 0, "description": "The seed of the random choices for `probability`."},
}
MATCH: Final[dict[str, Any]] = {
    "api": {"type": "string", "description": "The name of an API, such as EndTxn."},
    "versions": {"type": ["integer", "string"], "description": 'A version, or a range such as "3-5" or "3+".'},
    "client_id": {"type": "string"},
    "software": {
        "type": "string",
        "description": "The name of the client library, as the client sent it in ApiVersions.",
    },
    "principal": {"type": "string"},
    "transactional_id": {"type": "string"},
    "group": {"type": "string"},
    "connection": {"type": "integer", "minimum": 0},
    "listener": {"type": "string"},
    "node": {"type": "integer", "minimum": 0},
    "producer_id": {"type": "integer", "minimum": 0},
    "topic": {"type": "string"},
    "partition": {"type": "integer", "minimum": 0},
    "when": {
        "type": ["string", "array"],
        "items": {"type": "string"},
        "description": "Comparisons with fields of the request, such as memberEpoch == 0. They require `api`.",
    },
}
POINTS: Final = (
    *("accepted", "received", "applied", "replying", "verified"),
    *("prepared", "marker", "completed", "share_state", "loading"),
)
ACTIONS: Final[dict[str, Any]] = {
    "error": {"type": "string", "description": "The name of an error code, such as CONCURRENT_TRANSACTIONS."},
    "partitions": {"type": "array", "items": {"type": "integer"}, "minItems": 1},
    "edit": {"type": "object", "description": "Changes to fields of the answer, by the path of each field."},
    "delay_ms": {"type": "integer", "minimum": 0},
    "throttle_ms": {"type": "integer", "minimum": 0},
    "hold": {
        "type": "string",
        "description": "The name of a hold: the request or step waits there until you release it.",
    },
    "slow_bytes_per_s": {"type": "integer", "minimum": 1},
    "drop": {"enum": [True]},
    "disconnect": {"enum": [True, "fin", "rst"]},
    "observe": {"enum": [True]},
}
RULE: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "match": {"type": "object", "properties": {**MATCH, **COUNTS}, "additionalProperties": False},
        "at": {"enum": list(POINTS)},
        "do": {"type": "object", "properties": ACTIONS, "additionalProperties": False, "minProperties": 1},
        "unused": {"enum": ["ok"], "description": "Lets a test pass even if nothing matches the rule."},
        **COUNTS,
    },
    "required": ["do"],
    "additionalProperties": False,
}
REPORTED_RULE: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        **RULE["properties"],
        "matched": {"type": "integer", "description": "How many requests, markers or steps the rule matched."},
        "hits": {"type": "integer", "description": "How many of these matches the rule acted on."},
        "unmade": {
            "type": "integer",
            "description": "How many answers could not be edited, because they lack a field or element that the"
            " edits change. If this equals `matched`, the rule has had no effect.",
        },
        "unmade_because": {
            "type": ["string", "null"],
            "description": "Why the last of these answers could not be edited; null if all answers could be edited.",
        },
    },
    "required": ["name", "at", "do", "matched", "hits", "unmade", "unmade_because"],
}
