"""Serves the control interface's calls over HTTP, with a handler for each row of `odradek/control_calls/table.py`.

Paths below `/control/v1/clusters/{id}` address that cluster; other paths address the cluster `default`. Request bodies
and responses are JSON, and errors are problem documents. A call returns only after its effect is complete.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, TypeAlias

from aiohttp import web

from odradek.broker.control.clusters.clusters import DEFAULT
from odradek.broker.control.clusters.releases import release_named
from odradek.broker.control.clusters.seeding import parse_seed, seed_cluster
from odradek.broker.control.faults.rule_json import rule_as_json
from odradek.broker.control.http.fields import SentFields, read_fields, read_json
from odradek.broker.control.http.live_recording import send_recording
from odradek.broker.control.http.request_events import EventCursor, send_requests
from odradek.broker.control.http.shown import PageClusters
from odradek.broker.control.http.state import LISTS, Row, page_of, partition_row
from odradek.broker.control.http.waiting import wait, wait_for_effects
from odradek.broker.control.nodes.nodes import parse_nodes
from odradek.broker.control.odd.odd import PERCENT
from odradek.broker.control.presets.table import PRESETS, bring_about, make_topics
from odradek.broker.control.problems import Problem, check_known_fields, mapping, text, whole_number
from odradek.broker.http.guard import LOCAL, refusal
from odradek.broker.http.json_answer import json_answer
from odradek.broker.http.page.routes import CONTROLLED
from odradek.broker.http.pages import AccessRefused
from odradek.broker.network.recent_exchanges import MAX_EXCHANGES
from odradek.broker.runtime.starting import CannotStart
from odradek.control_calls import table
from odradek.control_calls.call import CallField, ControlCall, FieldKind
from odradek.control_calls.openapi import openapi_document
from odradek.control_calls.table import (
    BASE,
    CALLS,
    CLOCK_MOVES,
    DEFAULT_WAIT_MS,
    MAX_ADVANCE_MS,
    MAX_PARTITIONS,
    REFUSALS,
)
from odradek.protocol.errors import KafkaError

if TYPE_CHECKING:
    from odradek.broker.control.clusters.clusters import Cluster, Clusters

HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
EVENTS = "text/event-stream"
ProcessHandler: TypeAlias = Callable[[web.Request, SentFields], Awaitable[object]]
ClusterHandler: TypeAlias = "Callable[[Cluster, web.Request, SentFields], Awaitable[object]]"


def add_control(app: web.Application, clusters: Clusters) -> None:
    app[CONTROLLED] = PageClusters(clusters)
    app.middlewares.insert(0, as_problems)
    routes = Routes(clusters)
    for call in CALLS:
        handler = routes.handler(call)
        for path, names_cluster in call.paths():
            app.router.add_route(call.method, BASE + path, guarded(call, handler))
            if not path and not names_cluster:  # the OpenAPI document lists this path with a slash
                app.router.add_route(call.method, f"{BASE}/", guarded(call, handler))


@web.middleware
async def as_problems(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Turns access refusals and the HTTP server's own errors, such as 404, 405 or 413, into problem documents."""
    try:
        return await handler(request)
    except web.HTTPException as refused:
        if refused.status < 400 or not f"{request.path}/".startswith(f"{BASE}/"):
            raise
        if isinstance(refused, AccessRefused):
            problem = Problem(refused.status, refused.refusal.text)
            return problem_answer(problem, {**HEADERS, **refused.refusal.headers})
        detail = REFUSALS.get(refused.status, f"{request.method} {request.path}: {refused.reason}")
        allowed = refused.headers.get("Allow")
        headers = HEADERS if allowed is None else {**HEADERS, "Allow": allowed}
        return problem_answer(Problem(refused.status, detail, allowed=allowed), headers)


def problem_answer(problem: Problem, headers: Mapping[str, str] = HEADERS) -> web.Response:
    return json_answer(
        problem.document(), status=problem.status, content_type="application/problem+json", headers=headers
    )


def guarded(
    call: ControlCall, handler: Callable[[web.Request], Awaitable[object]]
) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    """Wraps a handler. The wrapper refuses requests with foreign Host or Origin headers and turns errors into problem
    documents."""

    async def handle(request: web.Request) -> web.StreamResponse:
        why = refusal(request.headers.get("Host", LOCAL), request.headers.get("Origin"), ())
        try:
            if why is not None:
                raise Problem(403, why)
            answer = await handler(request)
        except Problem as problem:
            return problem_answer(problem)
        if isinstance(answer, web.StreamResponse):
            return answer
        return json_answer(answer, status=call.status, headers=HEADERS)

    return handle


def path_within(request: web.Request) -> str:
    """Returns a request's path relative to its cluster's path, still percent-encoded."""
    path = request.rel_url.raw_path.removeprefix(BASE)
    return "/" + path.split("/", 3)[3] if "id" in request.match_info else path


class Routes:
    def __init__(self, clusters: Clusters) -> None:
        self._clusters = clusters

    def handler(self, call: ControlCall) -> Callable[[web.Request], Awaitable[object]]:
        """Returns the HTTP handler of a call."""
        if call.name in CLUSTER_CALLS:
            return self._of_cluster(call, CLUSTER_CALLS[call.name])
        of_clusters: Mapping[str, ClusterHandler] = {
            table.CHECKPOINT.name: self.checkpoint,
            table.RECORDING.name: self.recording,
            table.REQUESTS.name: self.requests,
        }
        if call.name in of_clusters:
            return self._of_cluster(call, of_clusters[call.name])
        of_process: Mapping[str, ProcessHandler] = {
            table.OPENAPI.name: openapi,
            table.CLUSTERS.name: self.list,
            table.CREATE.name: self.create,
            table.DELETE.name: self.delete,
            table.CRASH.name: self.crash,
            table.RESTART.name: self.restart,
            table.REWIND.name: self.rewind,
            table.LEASE.name: self.lease,
            table.STOP_NODE.name: self.stop_node,
            table.START_NODE.name: self.start_node,
        }
        handler = of_process[call.name]

        async def handle(request: web.Request) -> object:
            return await handler(request, await read_fields(call, request))

        return handle

    def _of_cluster(self, call: ControlCall, handler: ClusterHandler) -> Callable[[web.Request], Awaitable[object]]:
        async def handle(request: web.Request) -> object:
            cluster = self._cluster(request)
            if call.is_noted and cluster.faults.recorders:
                cluster.faults.record_call(request.method, path_within(request), await read_json(request))
            return await handler(cluster, request, await read_fields(call, request))

        return handle

    def _cluster(self, request: web.Request) -> Cluster:
        return self._clusters.get(request.match_info.get("id", DEFAULT))

    async def recording(self, cluster: Cluster, request: web.Request, found: SentFields) -> object:
        """Streams all subsequent exchanges in the format of `odradek serve --record`.

        The stream ends when the reader disconnects or is too slow.
        """
        headers = {**HEADERS, "Content-Type": "application/octet-stream"}
        return await send_recording(cluster, request, headers, lambda: self._is_there(cluster))

    async def requests(self, cluster: Cluster, request: web.Request, found: SentFields) -> object:
        """Returns the newest `limit` requests, oldest first. Query parameters:
        `?since=NUMBER&api=NAME&client_id=NAME&limit=N`.

        Sends server-sent events instead if the client accepts them.
        """
        if EVENTS not in request.headers.get("Accept", ""):
            return last_requests(cluster, request)
        query = request.query
        check_known_fields(query, table.REQUESTS.query_names - {"limit"})
        last_event_id = request.headers.get("Last-Event-ID")
        since = (
            number_given("since", query.get("since", "0"))
            if last_event_id is None
            else number_given("Last-Event-ID", last_event_id)
        )
        exchanges = cluster.faults.exchanges
        cursor = EventCursor(exchanges, since, query.get("api"), query.get("client_id"))
        return await send_requests(exchanges, cursor, request, HEADERS, lambda: self._is_there(cluster))

    def _is_there(self, cluster: Cluster) -> bool:
        return any(each is cluster for each in self._clusters)

    async def list(self, request: web.Request, found: SentFields) -> object:
        return [each.as_json() for each in self._clusters]

    async def create(self, request: web.Request, found: SentFields) -> object:
        fork = found.text_or_none("fork")
        nodes = None if found.get("nodes") is None else parse_nodes(found.get("nodes"))
        settings = mapping(found.values.get("settings", {}), "settings")
        topics = mapping(found.get("topics") or {}, "topics")
        partitions = {name: whole_number(value, f"topics.{name}", 1, MAX_PARTITIONS) for name, value in topics.items()}
        preset = _preset(found.get("preset"))
        release = None if found.get("emulate") is None else release_named(found.get("emulate"))
        listeners, users = found.get("listeners"), found.get("users")
        ttl_s = found.number_or_none("ttl_s")
        seed = None if found.get("seed") is None else await parse_seed(found.get("seed"), partitions)
        cluster = await self._clusters.create(settings, fork, ttl_s, nodes, release, listeners, users)
        try:
            await make_topics(cluster, partitions)
            if seed is not None:
                await seed_cluster(cluster, seed)
            made = {**cluster.as_json(), "token": cluster.token}
            issued = cluster.listeners_and_users.issued
            if issued is not None and issued.clients:
                made["client_certificates"] = dict(issued.clients)
            if preset is None:
                return made
            return {**made, "preset": await bring_about(cluster, *preset)}
        except Problem:
            await self._clusters.delete(cluster.id)
            raise

    async def delete(self, request: web.Request, found: SentFields) -> object:
        await self._clusters.delete(request.match_info["id"])
        return {}

    async def crash(self, request: web.Request, found: SentFields) -> object:
        await self._clusters.crash(request.match_info["id"])
        return self._cluster(request).as_json()

    async def restart(self, request: web.Request, found: SentFields) -> object:
        is_clean = found.is_set("clean", default=True)
        return (await self._clusters.restart(request.match_info["id"], is_clean=is_clean)).as_json()

    async def rewind(self, request: web.Request, found: SentFields) -> object:
        return (await self._clusters.rewind(request.match_info["id"], found.text("name"))).as_json()

    async def lease(self, request: web.Request, found: SentFields) -> object:
        cluster = self._cluster(request)
        if cluster.id == DEFAULT:
            raise Problem(409, "the cluster default has no lease, because it exists as long as its process")
        self._clusters.set_lease(cluster, found.number_or_none("ttl_s"))
        return {"ttl_s": cluster.ttl_s}

    async def stop_node(self, request: web.Request, found: SentFields) -> object:
        """Stops a node. `{"clean": false}` kills it; the metadata shows this only after the broker session timeout."""
        is_clean = found.is_set("clean", default=True)
        cluster = self._clusters.require_own(request.match_info["id"])
        async with cluster.change():
            nodes = cluster.running_nodes
            await nodes.stop(nodes.get(number_in(request, "node")), is_clean=is_clean)
        return cluster.as_json()

    async def start_node(self, request: web.Request, found: SentFields) -> object:
        cluster = self._clusters.require_own(request.match_info["id"])
        async with cluster.change():
            nodes = cluster.running_nodes
            try:
                await nodes.start(nodes.get(number_in(request, "node")))
            except CannotStart as error:  # another process may be using the node's port now
                raise Problem(409, f"the node cannot start: {error}") from error
            cluster.faults.install()
        return cluster.as_json()

    async def checkpoint(self, cluster: Cluster, request: web.Request, found: SentFields) -> object:
        await self._clusters.checkpoint(cluster.id, found.text("name"))
        return cluster.as_json()


async def openapi(request: web.Request, found: SentFields) -> object:
    return served_document()


@cache
def served_document() -> Mapping[str, object]:
    """Returns the OpenAPI document for all calls, including this broker's presets."""
    return openapi_document(with_presets(each) for each in CALLS)


def with_presets(call: ControlCall) -> ControlCall:
    """Adds the names of the presets, with their parameters, to the description of the call that applies a preset."""
    if call is not table.PRESET:
        return call
    defaults = {name: default for preset in PRESETS.values() for name, default in preset.defaults.items()}
    name = replace(table.NAME, schema={"enum": sorted(PRESETS)})
    schemas = {str: {"type": "string", "minLength": 1}, int: {"type": "integer", "minimum": 0}}
    parameters = tuple(
        CallField(each, FieldKind.JSON_PAIRS, schemas[type(default)]) for each, default in sorted(defaults.items())
    )
    return replace(call, path_fields=(name,), body=parameters)


async def show(cluster: Cluster, request: web.Request, found: SentFields) -> object:
    return cluster.as_json()


def number_in(request: web.Request, name: str) -> int:
    """Returns the number in the path parameter `name`. Raises Problem."""
    return number_given(name, request.match_info[name])


async def cut_off(cluster: Cluster, request: web.Request, found: SentFields) -> object:
    """Adds a rule that disconnects a client on every request to the node. Body: `{"client_id": "name"}`.

    When the rule is removed, the client can use the node again.
    """
    node, client_id = number_in(request, "node"), found.text("client_id")
    cluster.running_nodes.get(node)
    rule = {
        "name": f"node {node} is unreachable for {client_id}",
        "match": {"node": node, "client_id": client_id},
        "do": {"disconnect": True},
    }
    return [rule_as_json(each) for each in cluster.faults.add(rule)]


async def move_leader(cluster: Cluster, request: web.Request, found: SentFields) -> object:
    async with cluster.change():
        nodes = cluster.running_nodes
        await nodes.move_leader(
            request.match_info["topic"], number_in(request, "partition"), nodes.get(found.get("node"))
        )
        await cluster.wait_until_idle()
    return {}


async def put_in_rack(cluster: Cluster, request: web.Request, found: SentFields) -> object:
    """Sets a node's rack. Body: `{"rack": "name"}`; null removes the rack."""
    rack = found.text_or_none("rack")
    async with cluster.change():
        nodes = cluster.running_nodes
        await nodes.put_in_rack(nodes.get(number_in(request, "node")), rack)
        await cluster.wait_until_idle()
    return {}


async def follow(cluster: Cluster, request: web.Request, found: SentFields) -> object:
    """Sets the offset up to which a follower appears to have replicated. Body: `{"node": n, "end": offset}`. If `end`
    is null, the follower has replicated everything."""
    topic, index = request.match_info["topic"], number_in(request, "partition")
    end = found.number_or_none("end")
    async with cluster.change():
        nodes = cluster.running_nodes
        nodes.set_follower_end(topic, index, nodes.get(found.get("node")), end)
        await cluster.wait_until_idle()
    return {}


async def truncate(cluster: Cluster, request: web.Request, found: SentFields) -> object:
    """Truncates a partition and makes the node its leader. Body: `{"offset": n, "node": n}`. If `node` is null, the
    leader does not change."""
    topic, index = request.match_info["topic"], number_in(request, "partition")
    async with cluster.change():
        nodes = cluster.running_nodes
        node = None if found.get("node") is None else nodes.get(found.get("node"))
        try:
            await nodes.truncate(topic, index, found.number("offset"), node)
        except KafkaError as error:
            raise Problem(409, f"{topic}-{index} is offline: {error}") from error
        await cluster.wait_until_idle()
    return partition_row(cluster, topic, index)


async def move_coordinator(cluster: Cluster, request: web.Request, found: SentFields) -> object:
    async with cluster.change():
        nodes = cluster.running_nodes
        kind, key = request.match_info["type"], request.match_info["key"]
        await nodes.move_coordinator(kind, key, nodes.get(found.get("node")))
        await cluster.wait_until_idle()
    return {}


async def faults(cluster: Cluster, request: web.Request, found: SentFields) -> object:
    return [rule_as_json(rule) for rule in cluster.faults.rules.by_name.values()]


async def add_faults(cluster: Cluster, request: web.Request, found: SentFields) -> object:
    return [rule_as_json(rule) for rule in cluster.faults.add(await read_json(request))]


async def remove_faults(cluster: Cluster, request: web.Request, found: SentFields) -> object:
    removed, effects = cluster.faults.remove(request.match_info.get("name"))
    await wait_for_effects(cluster, effects)
    return [rule_as_json(rule) for rule in removed]


async def holds(cluster: Cluster, request: web.Request, found: SentFields) -> object:
    return cluster.faults.rules.holds.as_json()


async def release(cluster: Cluster, request: web.Request, found: SentFields) -> object:
    released = cluster.faults.rules.release(request.match_info["name"])
    await wait_for_effects(cluster, released.effects)
    return {"released": released.count}


async def clock(cluster: Cluster, request: web.Request, found: SentFields) -> object:
    return {"now_ms": cluster.time.now_ms(), "frozen": cluster.time.is_frozen}


async def move_clock(cluster: Cluster, request: web.Request, found: SentFields) -> object:
    """Moves or stops a cluster's clock.

    The body is `{"freeze": true}`, `{"resume": true}`, `{"advance_ms": n}` or `{"set_ms": n}`. If the path names the
    move, as in `/clock/advance`, the body is `{"ms": n}`.
    """
    how = request.match_info.get("how")
    if how is None:
        if len(found.values) != 1:
            raise Problem(
                400,
                "the body must have exactly one of freeze, resume, advance_ms and set_ms",
                allowed="freeze, resume, advance_ms, set_ms",
            )
        how, value = next(iter(found.values.items()))
        if how in ("freeze", "resume") and value is not True:
            raise Problem(400, f"{how} must be true", field=how)
        how = how.removesuffix("_ms")
    else:
        value = found.get("ms")
    match how:
        case "freeze":
            cluster.time.freeze()
        case "resume":
            cluster.time.resume()
        case "advance":
            await cluster.time.advance(whole_number(value, "ms", 0, MAX_ADVANCE_MS), cluster.wait_until_idle)
        case "set":
            await cluster.time.set(
                whole_number(value, "ms", 0, cluster.time.now_ms() + MAX_ADVANCE_MS), cluster.wait_until_idle
            )
        case _:
            raise Problem(404, f"{how} is not an action of the clock", allowed=", ".join(CLOCK_MOVES))
    return await clock(cluster, request, found)


def _preset(value: object) -> tuple[str, Mapping[str, object]] | None:
    """Parses the `preset` field, which is a name, or an object with `name` and `parameters`. Returns the name and the
    parameters."""
    if value is None or isinstance(value, str):
        return None if value is None else (value, {})
    found = mapping(value, "preset")
    check_known_fields(found, {"name", "parameters"}, "preset")
    return text(found.get("name"), "preset.name"), mapping(found.get("parameters", {}), "preset.parameters")


async def presets(cluster: Cluster, request: web.Request, found: SentFields) -> object:
    return [each.as_json() for each in PRESETS.values()]


async def preset(cluster: Cluster, request: web.Request, found: SentFields) -> object:
    """Applies a preset. The body contains its parameters; missing parameters have their default values."""
    return await bring_about(cluster, request.match_info["name"], found.values)


def last_requests(cluster: Cluster, request: web.Request) -> list[dict[str, object]]:
    """Returns the newest requests selected by the query, oldest first. Raises Problem."""
    query = request.query
    since = number_given("since", query.get("since", "0"))
    limit = number_given("limit", query.get("limit", str(MAX_EXCHANGES)))
    found = list(cluster.faults.exchanges.completed_since(since, query.get("api"), query.get("client_id")))
    return found[max(0, len(found) - limit) :]


def number_given(name: str, digits: str) -> int:
    """Parses a number. Raises Problem with a message that names the field `name`."""
    if not digits.isascii() or not digits.isdecimal() or len(digits) > 18:
        raise Problem(400, f"{name} must be a number", field=name)
    return int(digits)


async def odd(cluster: Cluster, request: web.Request, found: SentFields) -> object:
    given = cluster.faults.odd
    return {"seed": 0, "oddities": []} if given is None else given.as_json()


async def be_odd(cluster: Cluster, request: web.Request, found: SentFields) -> object:
    """Makes the cluster send odd responses. Body: `{"seed": n, "percent": {"cut write": 100}}`; a seed of 0 turns odd
    responses off."""
    percent = mapping(found.values.get("percent", {}), "percent")
    check_known_fields(percent, PERCENT.keys(), "percent")
    seed = found.number("seed")
    cluster.faults.be_odd(
        seed, {name: whole_number(value, f"percent.{name}", 0, 100) for name, value in percent.items()}
    )
    return await odd(cluster, request, found)


async def wait_for(cluster: Cluster, request: web.Request, found: SentFields) -> object:
    condition = {name: value for name, value in found.values.items() if name != "timeout_ms"}
    timeout_ms = found.number_or_none("timeout_ms")
    timeout_ms = DEFAULT_WAIT_MS if timeout_ms is None else timeout_ms
    is_true, facts = await wait(cluster, condition, timeout_ms, lambda: request.transport is None)
    return json_answer(facts, status=200 if is_true else 408, headers=HEADERS)


def paged(rows: Callable[[Cluster], Iterable[Row]]) -> ClusterHandler:
    """Returns a handler that lists rows in pages. Query parameters: `?skip=N&limit=N`."""

    async def handle(cluster: Cluster, request: web.Request, found: SentFields) -> object:
        return page_of(rows(cluster), request.query)

    return handle


CLUSTER_CALLS: Mapping[str, ClusterHandler] = {
    table.SHOW.name: show,
    table.FAULTS.name: faults,
    table.FAULT.name: add_faults,
    table.CLEAR.name: remove_faults,
    table.HOLDS.name: holds,
    table.RELEASE.name: release,
    table.NOW.name: clock,
    table.MOVE_CLOCK.name: move_clock,
    table.CLOCK.name: move_clock,
    table.CUT_OFF.name: cut_off,
    table.MOVE_LEADER.name: move_leader,
    table.TRUNCATE.name: truncate,
    table.FOLLOWER.name: follow,
    table.RACK.name: put_in_rack,
    table.MOVE_COORDINATOR.name: move_coordinator,
    table.PRESETS.name: presets,
    table.PRESET.name: preset,
    table.ODDITIES.name: odd,
    table.ODD.name: be_odd,
    table.WAIT.name: wait_for,
    **{name: paged(rows) for name, rows in LISTS.items()},
}
