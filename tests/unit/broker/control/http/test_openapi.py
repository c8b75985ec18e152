"""Tests that the table of control calls, the routes and the OpenAPI document agree."""

import asyncio
import json

import pytest
from aiohttp import web

from odradek.broker.control.clusters.chosen_listeners import MAX_LISTENERS, MAX_USERS
from odradek.broker.control.clusters.clusters import Clusters
from odradek.broker.control.faults.rule_json import ACTIONS, COUNTS, MATCHES, parse_rule, rule_as_json
from odradek.broker.control.faults.rules import Point
from odradek.broker.control.http.routes import add_control, served_document
from odradek.broker.control.http.waiting import KINDS
from odradek.broker.control.nodes.nodes import MAX_NODES
from odradek.broker.control.presets.table import PRESETS
from odradek.control_calls import rules, table
from odradek.control_calls.call import ControlCall
from odradek.control_calls.table import BASE, CALLS

DOCUMENT = json.loads(json.dumps(served_document()))


async def test_each_call_of_the_table_is_served_and_described_and_no_others() -> None:
    app = web.Application()
    add_control(app, Clusters(asyncio.get_running_loop()))
    routes = {
        (route.method, route.resource.canonical.removeprefix(BASE) or "/")
        for route in app.router.routes()
        if route.resource is not None and route.method != "HEAD"
    }
    described = {(method.upper(), path) for path, calls in DOCUMENT["paths"].items() for method in calls}
    rows = {(call.method, path or "/") for call in CALLS for path, _ in call.paths()}
    assert routes == described == rows


def test_a_call_has_a_name_of_its_own() -> None:
    for names in ([call.name for call in CALLS], [call.action for call in CALLS if call.action is not None]):
        assert len(set(names)) == len(names)


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.name)
def test_the_path_of_a_call_names_the_fields_that_the_row_has(call: ControlCall) -> None:
    assert [part[1:-1] for part in call.path.split("/") if part.startswith("{")] == [f.name for f in call.path_fields]
    assert all(field.is_required for field in call.path_fields[:-1])


def test_the_document_names_the_presets_and_their_parameters() -> None:
    for base in ("", "/clusters/{id}"):
        call = DOCUMENT["paths"][f"{base}/presets/{{name}}"]["post"]
        assert call["parameters"][-1]["schema"]["enum"] == sorted(PRESETS)
        known = call["requestBody"]["content"]["application/json"]["schema"]["properties"]
        kinds = {"string": str, "integer": int}
        defaults = {name: default for preset in PRESETS.values() for name, default in preset.defaults.items()}
        assert known.keys() == defaults.keys()
        assert all(isinstance(defaults[name], kinds[schema["type"]]) for name, schema in known.items())


def test_the_document_has_every_field_of_a_rule() -> None:
    assert rules.ACTIONS.keys() == ACTIONS
    assert rules.MATCH.keys() == MATCHES
    assert rules.COUNTS.keys() == set(COUNTS)
    assert set(rules.POINTS) == {point.value for point in Point}
    for base in ("", "/clusters/{id}"):
        schema = DOCUMENT["paths"][f"{base}/faults"]["post"]["requestBody"]["content"]["application/json"]["schema"]
        assert schema["oneOf"] == [rules.RULE, {"type": "array", "items": rules.RULE}]


def test_the_document_has_every_field_of_a_reported_rule() -> None:
    report = rule_as_json(parse_rule({"do": {"observe": True}}, "n"))
    assert set(rules.REPORTED_RULE["required"]) == report.keys()
    assert rules.REPORTED_RULE["properties"].keys() - rules.RULE["properties"].keys() == {
        *("matched", "hits", "unmade", "unmade_because")
    }
    for method in ("get", "post", "delete"):
        answers = DOCUMENT["paths"]["/faults"][method]["responses"]
        schema = answers["201" if method == "post" else "200"]["content"]["application/json"]["schema"]
        assert schema == {"type": "array", "items": rules.REPORTED_RULE}


def test_the_document_has_every_condition_of_wait() -> None:
    assert table.WAIT.body_names == set(KINDS).union(*KINDS.values()) | {"timeout_ms"}


def test_the_document_has_the_limits_of_the_broker() -> None:
    assert (table.MAX_NODES, table.MAX_LISTENERS, table.MAX_USERS) == (MAX_NODES, MAX_LISTENERS, MAX_USERS)


def test_the_document_says_how_the_http_server_itself_refuses() -> None:
    responses = DOCUMENT["components"]["responses"]
    for status in (401, 403, 404, 405, 408, 413):
        assert "application/problem+json" in responses[f"Refused{status}"]["content"]
    for path, calls in DOCUMENT["paths"].items():
        for method, call in calls.items():
            assert ({"408", "413"} <= call["responses"].keys()) == ("requestBody" in call), (method, path)
            assert call["responses"]["default"] == {"$ref": "#/components/responses/Problem"}


def test_every_reference_of_the_document_resolves() -> None:
    named = json.dumps(DOCUMENT).split('"$ref": "#/components/responses/')[1:]
    assert {each.partition('"')[0] for each in named} <= DOCUMENT["components"]["responses"].keys()
