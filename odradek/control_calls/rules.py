"""The JSON schemas of a fault rule: in requests of tests, and in responses of the broker."""

from __future__ import annotations

from typing import Any, Final

COUNTS: Final[dict[str, Any]] = {
    "after": {"type": "integer", "minimum": 0, "description": "So many matches pass before the rule acts."},
    "every": {"type": "integer", "minimum": 1, "description": "Of the matches behind `after`, it acts on each nth."},
    "times": {"type": ["integer", "null"], "minimum": 1, "description": "How often it acts; without it, always."},
    "probability": {"type": "number", "minimum": 0, "maximum": 1, "description": "Of acting on a match."},
    "seed": {"type": "integer", "minimum": 0, "description": "Of the numbers that decide about `probability`."},
}
MATCH: Final[dict[str, Any]] = {
    "api": {"type": "string", "description": "The name of an API, as EndTxn."},
    "versions": {"type": ["integer", "string"], "description": 'A version, or versions as in "3-5" or "3+".'},
    "client_id": {"type": "string"},
    "software": {"type": "string", "description": "The name that the client gave with ApiVersions."},
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
        "description": "Comparisons of the request's fields, such as memberEpoch == 0; they need `api`.",
    },
}
POINTS: Final = (
    *("accepted", "received", "applied", "replying", "verified"),
    *("prepared", "marker", "completed", "share_state", "loading"),
)
ACTIONS: Final[dict[str, Any]] = {
    "error": {"type": "string", "description": "The name of an error code, as CONCURRENT_TRANSACTIONS."},
    "partitions": {"type": "array", "items": {"type": "integer"}, "minItems": 1},
    "edit": {"type": "object", "description": "Values of the answer's fields, by their names."},
    "delay_ms": {"type": "integer", "minimum": 0},
    "throttle_ms": {"type": "integer", "minimum": 0},
    "hold": {"type": "string", "description": "The name of the hold at which it waits until it is released."},
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
        "unused": {"enum": ["ok"], "description": "A test does not fail if nothing matches the rule."},
        **COUNTS,
    },
    "required": ["do"],
    "additionalProperties": False,
}
TOLD_RULE: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        **RULE["properties"],
        "matched": {"type": "integer", "description": "How many requests, markers or steps the rule matched."},
        "hits": {"type": "integer", "description": "On how many of them it acted."},
        "unmade": {
            "type": "integer",
            "description": "How many answers could not be edited, since they do not have what the edits are about. "
            "The rule did nothing as long as `matched` - `unmade` is 0.",
        },
        "unmade_because": {
            "type": ["string", "null"],
            "description": "Why the last of these answers could not be edited; null if there is none.",
        },
    },
    "required": ["name", "at", "do", "matched", "hits", "unmade", "unmade_because"],
}
