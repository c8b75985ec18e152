"""Parses fault rules from JSON and formats them as JSON. All functions of this module are pure.

A rule in JSON:

{"name": "slow", "match": {"api": "EndTxn", "transactional_id": "t"}, "at": "received",
 "do": {"error": "CONCURRENT_TRANSACTIONS"}, "times": 3}
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from random import Random
from typing import Any

from odradek.broker.api.error_replies import answers_partitions
from odradek.broker.control.faults.edits import Edit, edits_as_json, find_field, json_name, parse_edit
from odradek.broker.control.faults.rules import ANSWERED_AT, REPLY_POINTS, Action, FieldComparison, Point, Rule
from odradek.broker.control.problems import (
    Problem,
    check_known_fields,
    invalid_field,
    mapping,
    text,
    unknown_field,
    whole_number,
)
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages import REQUESTS, request_class, response_class
from odradek.protocol.schema import load

APIS: Mapping[str, ApiKey] = {key.kafka_name: key for key in ApiKey if key.value in REQUESTS}
MAX_DELAY_MS = 7 * 24 * 3600 * 1000
COMPARISONS: Mapping[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
WHEN = re.compile(r"([A-Za-z][A-Za-z0-9_]*)\s*(==|!=|<=|>=|<|>)\s*(\S.*)")  # expects text without surrounding spaces
MARKER_MATCHES = frozenset({"producer_id", "topic", "partition"})
MATCHES_BY_POINT: Mapping[Point, frozenset[str]] = {  # points that are not listed allow all of MATCHES
    Point.ACCEPTED: frozenset({"listener", "node", "connection"}),
    Point.VERIFIED: MARKER_MATCHES | {"transactional_id"},
    Point.PREPARED: MARKER_MATCHES | {"transactional_id"},
    Point.MARKER: MARKER_MATCHES,
    Point.COMPLETED: MARKER_MATCHES | {"transactional_id"},
    Point.SHARE_STATE: frozenset({"group", "topic", "partition"}),
    Point.LOADING: frozenset({"topic"}),
}
MATCHES = MARKER_MATCHES | {
    "api",
    "versions",
    "client_id",
    "software",
    "principal",
    "transactional_id",
    "group",
    "connection",
    "listener",
    "node",
    "when",
}
COUNTS = ("after", "every", "times", "probability", "seed")
ACTIONS = frozenset(
    {
        *("error", "partitions", "edit", "delay_ms", "throttle_ms", "hold"),
        *("slow_bytes_per_s", "drop", "disconnect", "observe"),
    }
)
STEPS = frozenset({Point.VERIFIED, Point.PREPARED, Point.COMPLETED, Point.SHARE_STATE, Point.LOADING})
POINTS_BY_ACTION: Mapping[
    str, frozenset[Point]
] = {  # points at which an action is allowed; actions that are not listed are allowed at all points
    "edit": frozenset({Point.APPLIED}),
    "throttle_ms": frozenset({Point.APPLIED}),
    "error": ANSWERED_AT | {Point.MARKER, Point.SHARE_STATE},
    "partitions": ANSWERED_AT,
    "drop": REPLY_POINTS,
    "slow_bytes_per_s": REPLY_POINTS,
    "disconnect": REPLY_POINTS | {Point.ACCEPTED},
    "delay_ms": REPLY_POINTS | STEPS,
    "hold": REPLY_POINTS | STEPS | {Point.MARKER},
}


def parse_rule(value: object, name: str) -> Rule:
    """Parses the JSON object of a rule. Raises Problem, which names the invalid field.

    name  the rule's name if its definition contains none
    """
    fields = mapping(value, "rule")
    check_known_fields(fields, {"name", "match", "at", "do", "unused", *COUNTS})
    match = dict(mapping(fields.get("match", {}), "match"))
    counts = {each: match.pop(each) for each in COUNTS if each in match}
    counts |= {each: fields[each] for each in COUNTS if each in fields}
    check_known_fields(match, MATCHES, "match")
    at = _point(fields.get("at", "received"))
    check_known_fields(match, MATCHES_BY_POINT.get(at, MATCHES), "match")
    if fields.get("unused", "ok") != "ok":
        raise invalid_field("unused", '"ok"')
    api = _api(match.get("api"))
    for each in ("client_id", "software", "principal", "transactional_id", "group", "topic", "listener"):
        if each in match:
            text(match[each], f"match.{each}")
    for each in ("producer_id", "partition", "connection", "node"):
        if each in match:
            whole_number(match[each], f"match.{each}")
    probability = counts.get("probability", 1.0)
    if isinstance(probability, bool) or not isinstance(probability, int | float) or not 0 <= probability <= 1:
        raise invalid_field("probability", "a number from 0 to 1")
    if "do" not in fields:
        raise invalid_field("do", "an object with one of " + ", ".join(sorted(ACTIONS)))
    return Rule(
        name=text(fields.get("name", name), "name"),
        match=match,
        at=at,
        do=_action(mapping(fields["do"], "do"), at, api, _versions(match.get("versions"))),
        source=fields,
        apis=None if api is None else frozenset({api}),
        versions=_versions(match.get("versions")),
        when=_comparisons(match.get("when"), api),
        after=whole_number(counts.get("after", 0), "after"),
        every=whole_number(counts.get("every", 1), "every", 1),
        may_be_unused="unused" in fields,
        times=None if counts.get("times") is None else whole_number(counts["times"], "times", 1),
        probability=float(probability),
        random=Random(whole_number(counts.get("seed", 0), "seed")),
    )


def rule_as_json(rule: Rule) -> dict[str, object]:
    """Formats a rule, including its match and hit counts."""
    fields = {**rule.source, "name": rule.name, "at": rule.at.value, "matched": rule.matched, "hits": rule.hits}
    if "when" in rule.match:
        fields["match"] = {**mapping(rule.source["match"], "match"), "when": _condition_as_json(rule.match["when"])}
    do = mapping(rule.source["do"], "do")
    if "edit" in do:
        fields["do"] = {**do, "edit": edits_as_json(mapping(do["edit"], "do.edit"))}
    return {**fields, "unmade": rule.failed_edits, "unmade_because": rule.edit_failure}


def _point(value: object) -> Point:
    names = {each.value: each for each in Point}
    name = text(value, "at")
    if name not in names:
        raise unknown_field("at", name, names)
    return names[name]


def _api(value: object) -> ApiKey | None:
    if value is None:
        return None
    name = text(value, "match.api")
    if name not in APIS:
        raise unknown_field("match.api", name, APIS)
    return APIS[name]


def _versions(value: object) -> tuple[int, int] | None:
    """Parses `match.versions`, such as `3`, `"3"`, `"3-5"` or `"3+"`. Returns the lowest and the highest version."""
    if value is None:
        return None
    found = re.fullmatch(r"(\d{1,5})(?:-(\d{1,5})|(\+))?", str(value)) if isinstance(value, str | int) else None
    if found is None:
        raise invalid_field("match.versions", 'a version, or a range such as "3-5" or "3+"')
    first = int(found[1])
    return first, int(found[2]) if found[2] else 2**15 if found[3] else first


def versions_of(api: ApiKey) -> range:
    return range(request_class(api.value).MIN_VERSION, request_class(api.value).MAX_VERSION + 1)


def _comparisons(value: object, api: ApiKey | None) -> tuple[FieldComparison, ...]:
    if value is None:
        return ()
    made = []
    for each in value if isinstance(value, list) else [value]:
        found = WHEN.fullmatch(text(each, "match.when").strip())
        if found is None:
            raise invalid_field("match.when", "a comparison such as memberEpoch == 0")
        if api is None:
            raise Problem(
                400,
                "match.when needs match.api, because it refers to fields of a request of that API",
                field="match.api",
            )
        fields = load(request_class(api.value).__module__.rpartition(".")[2]).fields
        attribute = find_field(fields, found[1], "match.when").attribute
        try:
            literal = json.loads(found[3])
        except (ValueError, RecursionError):
            raise invalid_field(
                "match.when", 'a comparison with a JSON value, such as protocolType == "consumer"'
            ) from None
        made.append(FieldComparison(attribute, COMPARISONS[found[2]], literal))
    return tuple(made)


def _condition_as_json(value: object) -> object:
    """Returns `match.when` with field names spelled as in the control interface's responses."""
    if isinstance(value, list):
        return [_condition_as_json(each) for each in value]
    found = WHEN.fullmatch(str(value))
    return value if found is None else f"{json_name(found[1])} {found[2]} {found[3]}"


def _action(
    fields: Mapping[str, object], at: Point, api: ApiKey | None, versions: tuple[int, int] | None = None
) -> Action:
    check_known_fields(fields, ACTIONS, "do")
    if not fields:
        raise invalid_field("do", "one of " + ", ".join(sorted(ACTIONS)))
    for each in fields:
        if at not in POINTS_BY_ACTION.get(each, frozenset(Point)):
            points = ", ".join(sorted(point.value for point in POINTS_BY_ACTION[each]))
            raise Problem(400, f"do.{each} cannot be used at {at.value}", field="at", allowed=points)
    for each in ("drop", "observe"):
        if fields.get(each, True) is not True:
            raise invalid_field(f"do.{each}", "true")
    if fields.get("disconnect", True) not in (True, "fin", "rst"):
        raise invalid_field("do.disconnect", 'true, "fin" or "rst"')
    partitions = fields.get("partitions")
    if partitions is not None:
        if "error" not in fields or not isinstance(partitions, list) or not partitions:
            raise invalid_field(
                "do.partitions", "a list of partition numbers, and can be used only together with do.error"
            )
        if api is not None and not any(answers_partitions(api, each) for each in versions_of(api)):
            raise Problem(
                400, f"answers to {api.kafka_name} do not have an error for each partition", field="do.partitions"
            )
        partitions = frozenset(whole_number(each, "do.partitions") for each in partitions)
    error = None
    if "error" in fields:
        name = text(fields["error"], "do.error")
        if name not in ErrorCode.__members__:
            raise unknown_field("do.error", name, ErrorCode.__members__)
        error = ErrorCode[name]
    return Action(
        error=error,
        partitions=partitions,
        edits=tuple(_edits(fields, api, versions)),
        delay_ms=whole_number(fields.get("delay_ms", 0), "do.delay_ms", 0, MAX_DELAY_MS),
        hold=None if "hold" not in fields else text(fields["hold"], "do.hold"),
        slow_bytes_per_s=None
        if "slow_bytes_per_s" not in fields
        else whole_number(fields["slow_bytes_per_s"], "do.slow_bytes_per_s", 1, 2**31 - 1),
        drops="drop" in fields,
        disconnects="disconnect" in fields,
        resets=fields.get("disconnect") == "rst",
    )


def _edits(fields: Mapping[str, object], api: ApiKey | None, versions: tuple[int, int] | None) -> Iterator[Edit]:
    if "throttle_ms" in fields:
        if api is None or "throttle_time_ms" not in response_class(api.value).__slots__:
            raise Problem(
                400,
                "do.throttle_ms needs match.api with an API whose answers have the field throttleTimeMs",
                field="match.api",
            )
        yield parse_edit(
            api, "throttleTimeMs", whole_number(fields["throttle_ms"], "do.throttle_ms", 0, 2**31 - 1), versions
        )
    if "edit" not in fields:
        return
    if api is None:
        raise Problem(
            400, "do.edit needs match.api, because it changes fields of an answer of that API", field="match.api"
        )
    for path, value in mapping(fields["edit"], "do.edit").items():
        yield parse_edit(api, path, value, versions)
