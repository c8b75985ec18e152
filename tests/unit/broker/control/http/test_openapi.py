"""The OpenAPI document names the routes that there are, and no others."""

import asyncio
import json
from importlib import resources

from aiohttp import web

from odradek.broker.control.clusters.clusters import Clusters
from odradek.broker.control.faults.rules import ACTIONS
from odradek.broker.control.http.routes import BASE, add_control
from odradek.broker.control.presets.table import PRESETS

DOCUMENT = json.loads(resources.files("odradek.broker.control.http").joinpath("openapi.json").read_bytes())


async def test_routes_and_document_agree() -> None:
    app = web.Application()
    add_control(app, Clusters(asyncio.get_running_loop()))
    routes = {
        (route.method, route.resource.canonical.removeprefix(BASE) or "/")
        for route in app.router.routes()
        if route.resource is not None and route.method != "HEAD"
    }
    told = {(method.upper(), path) for path, calls in DOCUMENT["paths"].items() for method in calls}
    assert routes - {("HEAD", "/")} == told


def test_the_document_names_the_presets_and_their_parameters() -> None:
    for base in ("", "/clusters/{id}"):
        call = DOCUMENT["paths"][f"{base}/presets/{{name}}"]["post"]
        assert call["parameters"][-1]["schema"]["enum"] == sorted(PRESETS)
        known = call["requestBody"]["content"]["application/json"]["schema"]["properties"]
        kinds = {"string": str, "integer": int}
        defaults = {name: default for preset in PRESETS.values() for name, default in preset.defaults.items()}
        assert known.keys() == defaults.keys()
        assert all(isinstance(defaults[name], kinds[schema["type"]]) for name, schema in known.items())


def test_the_document_names_what_a_rule_may_do() -> None:
    text = json.dumps(DOCUMENT)
    for base in ("", "/clusters/{id}"):
        schema = DOCUMENT["paths"][f"{base}/faults"]["post"]["requestBody"]["content"]["application/json"]["schema"]
        rule = schema.get("oneOf", schema.get("anyOf", [schema]))[0]
        assert rule["properties"]["do"]["properties"].keys() == ACTIONS
    assert '"do": {"type": "object"}' not in text
