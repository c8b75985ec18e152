"""The calls of the control interface, one per row.

To add a call, add a row here and a handler in `odradek/broker/control/http/routes.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from odradek.control_calls import answers
from odradek.control_calls.call import CallField, CallScope, ControlCall, FieldKind, JsonSchema
from odradek.control_calls.rules import RULE

BASE: Final = "/control/v1"
MAX_PARTITIONS: Final = 10_000
MAX_NODES: Final = 16
MAX_LISTENERS: Final = 8
MAX_USERS: Final = 100
MAX_TTL_S: Final = 24 * 3600
MAX_ADVANCE_MS: Final = 366 * 24 * 3600 * 1000
MAX_WAIT_MS: Final = 600_000
DEFAULT_WAIT_MS: Final = 10_000
MAX_ROWS: Final = 1000
CLOCK_MOVES: Final = ("freeze", "resume", "advance", "set")

REFUSALS: Final[Mapping[int, str]] = {
    404: "there is no such call: GET /control/v1/openapi.json lists all calls",
    405: "the path does not support this method: `allowed` and the header Allow list the supported methods",
    408: "the body did not arrive in time",
    413: "the body is larger than 1 MiB: send fewer rules or a smaller seed in one call",
}
"""The details of the HTTP server's own errors, keyed by status. They are possible for every path and body."""
ACCESS_REFUSALS: Final[Mapping[int, str]] = {
    401: "the token is missing or wrong: send odradek.http.token, or the token of the cluster",
    403: "the port can be reached from other machines, but has no token; or the request comes from a page of"
    " another site",
}
"""The details of access errors, keyed by status. Every call checks access first."""


def _whole_number(least: int = 0, most: int | None = None) -> JsonSchema:
    return {"type": "integer", "minimum": least} | ({} if most is None else {"maximum": most})


def _object(properties: Mapping[str, Any], *required: str) -> JsonSchema:
    return {"type": "object", "properties": properties, "additionalProperties": False} | (
        {"required": [*required]} if required else {}
    )


TEXT: Final[JsonSchema] = {"type": "string", "minLength": 1}
BOOLEAN: Final[JsonSchema] = {"type": "boolean"}
NAME = CallField("name", FieldKind.TEXT, TEXT, is_required=True, metavar="NAME")
NODE = CallField("node", FieldKind.NUMBER, _whole_number(), is_required=True, metavar="NODE")
TOPIC = CallField("topic", FieldKind.TEXT, TEXT, is_required=True, metavar="TOPIC")
PARTITION = CallField("partition", FieldKind.NUMBER, _whole_number(), is_required=True, metavar="PARTITION")
HOW = CallField("how", FieldKind.TEXT, {"enum": [*CLOCK_MOVES]}, is_required=True, metavar="HOW")
SKIP = CallField(
    "skip", FieldKind.NUMBER, _whole_number(0, 2**31), "leave out the first N rows", option="--skip", metavar="N"
)
LIMIT = CallField(
    "limit", FieldKind.NUMBER, _whole_number(0, MAX_ROWS), "return at most N rows", option="--limit", metavar="N"
)
LISTENER: Final = _object(
    {
        "name": {"type": "string"},
        "protocol": {"enum": ["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]},
        "port": _whole_number(0, 65535),
        "ports": {"type": "array", "items": _whole_number(0, 65535), "minItems": 1, "maxItems": MAX_NODES},
        "mechanisms": {
            "type": "array",
            "items": {"enum": ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]},
            "minItems": 1,
        },
        "client_auth": {"enum": ["none", "requested", "required"]},
        "certificate": _object({"key": {"type": "string"}, "chain": {"type": "string"}}, "key", "chain"),
        "client_ca": {"type": "string"},
    }
)


def _unclean_field(words: str) -> CallField:
    return CallField("clean", FieldKind.SWITCH, BOOLEAN, words, option="--unclean")


def _of_condition(name: str, schema: JsonSchema, *, is_nullable: bool = False) -> CallField:
    """Returns a field for a condition of `wait`; the command accepts it as NAME=VALUE."""
    return CallField(name, FieldKind.JSON_PAIRS, schema, is_nullable=is_nullable)


OPENAPI = ControlCall(
    "openapi",
    "GET",
    "/openapi.json",
    "describe the interface as an OpenAPI document",
    CallScope.PROCESS,
    answer={"type": "object"},
)
CLUSTERS = ControlCall(
    "clusters",
    "GET",
    "/clusters",
    "list the clusters",
    CallScope.PROCESS,
    action="clusters",
    answer=answers.list_of(answers.CLUSTER),
)
CREATE = ControlCall(
    "create",
    "POST",
    "/clusters",
    "create a cluster",
    CallScope.PROCESS,
    action="create",
    body=(
        CallField("settings", FieldKind.TEXT_PAIRS, {"type": "object"}, "broker settings", metavar="SETTING=VALUE"),
        CallField(
            "fork",
            FieldKind.TEXT,
            TEXT,
            "the cluster whose log, coordinators and clock the new cluster copies",
            is_nullable=True,
            option="--fork",
            metavar="ID",
        ),
        CallField(
            "nodes",
            FieldKind.NUMBER_OR_NUMBERS,
            {
                "oneOf": [
                    _whole_number(1, MAX_NODES),
                    {
                        "type": "array",
                        "items": _whole_number(0, 2**31 - 1),
                        "minItems": 1,
                        "maxItems": MAX_NODES,
                        "uniqueItems": True,
                    },
                ]
            },
            "the number of nodes, or a list of their ids",
            is_nullable=True,
            option="--nodes",
            metavar="N | ID,ID",
        ),
        CallField(
            "topics",
            FieldKind.JSON_PAIRS,
            {"type": "object", "additionalProperties": _whole_number(1, MAX_PARTITIONS)},
            "a topic to create; may be given more than once",
            is_nullable=True,
            option="--topic",
            metavar="NAME=PARTITIONS",
        ),
        CallField(
            "ttl_s",
            FieldKind.NUMBER,
            _whole_number(1, MAX_TTL_S),
            "delete the cluster after N seconds",
            is_nullable=True,
            option="--ttl-s",
            metavar="N",
        ),
        CallField(
            "preset",
            FieldKind.TEXT,
            {"oneOf": [TEXT, _object({"name": TEXT, "parameters": {"type": "object"}}, "name")]},
            "the rare state in which the cluster starts; `presets` lists the states",
            is_nullable=True,
            option="--preset",
            metavar="NAME",
        ),
        CallField(
            "emulate",
            FieldKind.TEXT,
            TEXT,
            "the release of Kafka that the cluster emulates: 3.9, 4.0, 4.0-tv1, 4.3 or 4.4",
            is_nullable=True,
            option="--emulate",
            metavar="RELEASE",
        ),
        CallField(
            "listeners",
            FieldKind.JSON_LIST,
            {"type": "array", "minItems": 1, "maxItems": MAX_LISTENERS, "items": LISTENER},
            'a listener, such as {"protocol": "SASL_SSL", "port": 9093}; may be given more than once',
            is_nullable=True,
            option="--listener",
            metavar="JSON",
        ),
        CallField(
            "users",
            FieldKind.TEXT_PAIRS,
            {"type": "object", "maxProperties": MAX_USERS, "additionalProperties": TEXT},
            "a user who can log in at the listeners, with the password; may be given more than once",
            is_nullable=True,
            option="--user",
            metavar="NAME=PASSWORD",
        ),
        CallField(
            "seed",
            FieldKind.TEXT_DOCUMENT,
            {"oneOf": [TEXT, {"type": "object"}]},
            "a seed with the topics, records, groups, users, ACLs and schemas to create: JSON or YAML, @FILE, or -",
            is_nullable=True,
            option="--seed",
            metavar="SEED",
        ),
    ),
    status=201,
    answer=answers.CREATED_CLUSTER,
    python=("Odradek.cluster",),
)
SHOW = ControlCall(
    "show",
    "GET",
    "",
    "show the cluster, its nodes and checkpoints",
    action="show",
    answer=answers.CLUSTER,
    python=("Odradek.default", "Cluster.nodes"),
)
DELETE = ControlCall(
    "delete",
    "DELETE",
    "",
    "delete the cluster: cut its connections and remove its files",
    CallScope.NAMED,
    action="delete",
    answer=answers.EMPTY,
    python=("Cluster.delete",),
)
CHECKPOINT = ControlCall(
    "checkpoint",
    "POST",
    "/checkpoint",
    "save the log and the clock as a checkpoint",
    action="checkpoint",
    body=(NAME,),
    answer=answers.CLUSTER,
    python=("Cluster.checkpoint",),
)
REWIND = ControlCall(
    "rewind",
    "POST",
    "/rewind",
    "restore the state of the cluster at a checkpoint",
    CallScope.NAMED,
    action="rewind",
    body=(NAME,),
    answer=answers.CLUSTER,
    python=("Cluster.rewind",),
)
CRASH = ControlCall(
    "crash",
    "POST",
    "/crash",
    "stop the cluster, and leave its files as kill -9 would leave them",
    CallScope.NAMED,
    action="crash",
    body=(),
    answer=answers.CLUSTER,
    python=("Cluster.crash",),
)
RESTART = ControlCall(
    "restart",
    "POST",
    "/restart",
    "stop the cluster and start it again on the same ports",
    CallScope.NAMED,
    action="restart",
    body=(_unclean_field("crash the cluster instead of stopping it cleanly"),),
    answer=answers.CLUSTER,
    python=("Cluster.restart",),
)
LEASE = ControlCall(
    "lease",
    "POST",
    "/lease",
    "set a new lease; when it ends, the cluster is deleted",
    CallScope.NAMED,
    action="lease",
    body=(
        CallField(
            "ttl_s",
            FieldKind.NUMBER,
            _whole_number(1, MAX_TTL_S),
            "seconds from now until the lease ends; null removes the lease",
            is_nullable=True,
            metavar="SECONDS",
            is_asked=True,
        ),
    ),
    answer=answers.LEASE,
    python=("Cluster.lease",),
)
STOP_NODE = ControlCall(
    "stop-node",
    "POST",
    "/nodes/{node}/stop",
    "stop or kill a node",
    CallScope.NAMED,
    action="stop-node",
    path_fields=(NODE,),
    body=(_unclean_field("kill the node: metadata lists it for another 9 s"),),
    answer=answers.CLUSTER,
    python=("Cluster.stop_node",),
)
START_NODE = ControlCall(
    "start-node",
    "POST",
    "/nodes/{node}/start",
    "start a node on its port",
    CallScope.NAMED,
    action="start-node",
    path_fields=(NODE,),
    body=(),
    answer=answers.CLUSTER,
    python=("Cluster.start_node",),
)
CUT_OFF = ControlCall(
    "cut-off",
    "POST",
    "/nodes/{node}/unreachable_for",
    "add a rule that makes a node unreachable for a client.id",
    action="cut-off",
    path_fields=(NODE,),
    body=(CallField("client_id", FieldKind.TEXT, TEXT, is_required=True, metavar="CLIENT"),),
    status=201,
    answer=answers.RULES,
    is_noted=True,
    python=("Cluster.cut_off",),
)
MOVE_LEADER = ControlCall(
    "move-leader",
    "POST",
    "/partitions/{topic}/{partition}/leader",
    "make a node the leader of a partition",
    action="move-leader",
    path_fields=(TOPIC, PARTITION),
    body=(NODE,),
    answer=answers.EMPTY,
    is_noted=True,
    python=("Cluster.move_leader",),
)
RACK = ControlCall(
    "rack",
    "POST",
    "/nodes/{node}/rack",
    "put a node in a rack, so that consumers in this rack read from it",
    action="rack",
    path_fields=(NODE,),
    body=(
        CallField(
            "rack",
            FieldKind.TEXT,
            TEXT,
            "the name of the rack; default: no rack",
            is_nullable=True,
            metavar="RACK",
        ),
    ),
    answer=answers.EMPTY,
    is_noted=True,
    python=("Cluster.put_in_rack",),
)
FOLLOWER = ControlCall(
    "follower",
    "POST",
    "/partitions/{topic}/{partition}/follower",
    "set how far a follower has replicated a partition",
    action="follower",
    path_fields=(TOPIC, PARTITION),
    body=(
        NODE,
        CallField(
            "end",
            FieldKind.NUMBER,
            _whole_number(),
            "the first offset that the follower has not replicated; default: it has all records",
            is_nullable=True,
            metavar="OFFSET",
        ),
    ),
    answer=answers.EMPTY,
    is_noted=True,
    python=("Cluster.follow",),
)
TRUNCATE = ControlCall(
    "truncate",
    "POST",
    "/partitions/{topic}/{partition}/truncate",
    "truncate a log, as an unclean election does",
    action="truncate",
    path_fields=(TOPIC, PARTITION),
    body=(
        CallField("offset", FieldKind.NUMBER, _whole_number(), is_required=True, metavar="OFFSET"),
        CallField(
            "node",
            FieldKind.NUMBER,
            _whole_number(),
            "the node that becomes the leader; default: the current leader",
            is_nullable=True,
            option="--node",
            metavar="NODE",
        ),
    ),
    answer=answers.FACTS,
    is_noted=True,
    python=("Cluster.truncate",),
)
MOVE_COORDINATOR = ControlCall(
    "move-coordinator",
    "POST",
    "/coordinators/{type}/{key}",
    "move a coordinator to a node",
    action="move-coordinator",
    path_fields=(
        CallField(
            "type", FieldKind.TEXT, {"enum": ["group", "transaction", "share"]}, is_required=True, metavar="TYPE"
        ),
        CallField(
            "key",
            FieldKind.TEXT,
            TEXT,
            "the id of the group, the transactional id, or GROUP:TOPIC-ID:PARTITION",
            is_required=True,
            metavar="KEY",
        ),
    ),
    body=(NODE,),
    answer=answers.EMPTY,
    is_noted=True,
    python=("Cluster.move_coordinator",),
)
FAULTS = ControlCall(
    "faults",
    "GET",
    "/faults",
    "list the rules, and how often each matched",
    action="faults",
    answer=answers.RULES,
    python=("Cluster.faults",),
)
FAULT = ControlCall(
    "fault",
    "POST",
    "/faults",
    "add a rule, or a list of rules",
    action="fault",
    document=CallField(
        "rule",
        FieldKind.DOCUMENT,
        {"oneOf": [RULE, {"type": "array", "items": RULE}]},
        "a rule, or a list of rules",
        is_required=True,
        metavar="JSON | @FILE | -",
    ),
    status=201,
    answer=answers.RULES,
    is_noted=True,
    python=("Cluster.fault",),
)
CLEAR = ControlCall(
    "clear",
    "DELETE",
    "/faults/{name}",
    "delete a rule, or all rules; requests and steps that wait at their holds continue",
    action="clear",
    path_fields=(CallField("name", FieldKind.TEXT, TEXT, "the name of the rule; default: all rules", metavar="NAME"),),
    answer=answers.RULES,
    is_noted=True,
    python=("Cluster.clear_faults",),
)
HOLDS = ControlCall(
    "holds",
    "GET",
    "/holds",
    "list the holds, with the requests and steps that wait at each",
    action="holds",
    answer=answers.HOLDS,
    python=("Cluster.holds",),
)
RELEASE = ControlCall(
    "release",
    "POST",
    "/holds/{name}/release",
    "release a hold, and return when the effect of the released requests and steps is visible",
    action="release",
    path_fields=(NAME,),
    answer=answers.RELEASED,
    is_noted=True,
    python=("Cluster.release",),
)
NOW = ControlCall(
    "now", "GET", "/clock", "show the clock", action="now", answer=answers.CLOCK, python=("Clock.now_ms",)
)
MOVE_CLOCK = ControlCall(
    "move-clock",
    "POST",
    "/clock",
    "freeze, resume, advance or set the clock: pass exactly one of the fields",
    body=(
        CallField("freeze", FieldKind.TEXT, {"enum": [True]}),
        CallField("resume", FieldKind.TEXT, {"enum": [True]}),
        CallField("advance_ms", FieldKind.NUMBER, _whole_number(0, MAX_ADVANCE_MS)),
        CallField("set_ms", FieldKind.NUMBER, _whole_number()),
    ),
    answer=answers.CLOCK,
    is_noted=True,
)
CLOCK = ControlCall(
    "clock",
    "POST",
    "/clock/{how}",
    "freeze, resume, advance or set the clock",
    action="clock",
    path_fields=(HOW,),
    body=(
        CallField(
            "ms",
            FieldKind.NUMBER,
            _whole_number(),
            "for advance, how far to move the clock; for set, the new time",
            metavar="MS",
        ),
    ),
    answer=answers.CLOCK,
    is_noted=True,
    python=("Clock.freeze", "Clock.resume", "Clock.advance", "Clock.set"),
)
WAIT = ControlCall(
    "wait",
    "POST",
    "/wait",
    "wait until a condition is true",
    action="wait",
    body=(
        *(
            _of_condition(name, TEXT)
            for name in ("transaction", "group", "topic", "fault", "hold", "member", "share_group", "client")
        ),
        _of_condition("state", TEXT, is_nullable=True),
        *(
            _of_condition(name, _whole_number())
            for name in (
                *("members", "partition", "leader", "leader_epoch", "log_start_offset", "last_stable_offset"),
                *("log_end_offset", "hits", "waiting", "offset", "deliveries", "connections"),
            )
        ),
        _of_condition("owns", {"type": "array", "items": {"type": "string"}}),
        _of_condition("idle", BOOLEAN),
        CallField(
            "timeout_ms",
            FieldKind.NUMBER,
            _whole_number(0, MAX_WAIT_MS),
            "the maximum time to wait",
            option="--timeout-ms",
            metavar="N",
            default=DEFAULT_WAIT_MS,
        ),
    ),
    has_any_field=True,
    answer=answers.FACTS,
    also={408: "The facts, if the condition did not become true in time."},
    python=("Cluster.wait",),
)
PRESETS = ControlCall(
    "presets",
    "GET",
    "/presets",
    "list the rare states, with a description and the default parameters of each",
    action="presets",
    answer=answers.PRESETS,
    python=("Cluster.presets",),
)
PRESET = ControlCall(
    "preset",
    "POST",
    "/presets/{name}",
    "bring the cluster into a rare state; the fields are the parameters of the preset",
    action="preset",
    path_fields=(NAME,),
    body=(),
    has_any_field=True,
    answer=answers.FACTS,
    is_noted=True,
    python=("Cluster.preset",),
)
ODDITIES = ControlCall(
    "oddities",
    "GET",
    "/odd",
    "list the lawful but rare answers, and how often each was given",
    action="oddities",
    answer=answers.ODDITIES,
    python=("Cluster.odd",),
)
ODD = ControlCall(
    "odd",
    "POST",
    "/odd",
    "give lawful but rare answers, chosen by a seed",
    action="odd",
    body=(
        CallField(
            "seed",
            FieldKind.NUMBER,
            _whole_number(),
            "the seed for choosing the answers; 0 turns rare answers off",
            is_required=True,
            metavar="SEED",
        ),
        CallField("percent", FieldKind.JSON_PAIRS, {"type": "object", "additionalProperties": _whole_number(0, 100)}),
    ),
    answer=answers.ODDITIES,
    is_noted=True,
    python=("Cluster.odd",),
)
REQUESTS = ControlCall(
    "requests",
    "GET",
    "/requests",
    "list the latest requests and answers, or stream each exchange as an event when it is complete",
    action="requests",
    query=(
        CallField(
            "api", FieldKind.TEXT, TEXT, "only requests of this API, such as EndTxn", option="--api", metavar="NAME"
        ),
        CallField(
            "client_id", FieldKind.TEXT, TEXT, "only requests of this client.id", option="--client-id", metavar="NAME"
        ),
        CallField(
            "since",
            FieldKind.NUMBER,
            _whole_number(),
            "only requests with a higher number than this",
            option="--since",
            metavar="NUMBER",
        ),
        CallField(
            "limit", FieldKind.NUMBER, _whole_number(), "only the newest N requests", option="--limit", metavar="N"
        ),
    ),
    headers=(
        CallField("Last-Event-ID", FieldKind.NUMBER, _whole_number(), "resume the events after the one with this id"),
    ),
    answer=answers.REQUESTS,
    media_types=("application/json", "text/event-stream"),
    python=("Cluster.requests",),
)
RECORDING = ControlCall(
    "recording",
    "GET",
    "/recording",
    "stream all exchanges from now on, in the format of `serve --record`, until the reader disconnects or is too slow",
    query=(
        CallField(
            "records",
            FieldKind.TEXT,
            {"type": "string", "enum": ["true", "false"], "default": "true"},
            "`false` leaves out the records inside batches, which `odradek judge` does not need",
        ),
    ),
    media_types=("application/octet-stream",),
    python=("Cluster.record",),
)


def _list(name: str, what: str) -> ControlCall:
    return ControlCall(
        name,
        "GET",
        f"/{name}",
        f"list {what}",
        action=name.replace("_", "-"),
        query=(SKIP, LIMIT),
        answer=answers.PAGE,
        python=(f"Cluster.{name}",),
    )


PARTITIONS = _list("partitions", "the partitions, with leaders and offsets")
PRODUCERS = _list("producers", "the producer ids, as each partition knows them")
TRANSACTIONS = _list("transactions", "the transactional ids, with their states")
GROUPS = _list("groups", "the groups of every type, with members")
SHARE_PARTITIONS = _list("share_partitions", "the share partitions, with records in flight")
SESSIONS = _list("sessions", "the fetch sessions and share sessions")
CONNECTIONS = _list("connections", "the connections")

# `odradek control --help` and the OpenAPI document list the calls in this order.
CALLS: Final[tuple[ControlCall, ...]] = (
    *(OPENAPI, CLUSTERS, CREATE, SHOW, DELETE, CHECKPOINT, REWIND, CRASH, RESTART, LEASE),
    *(STOP_NODE, START_NODE, CUT_OFF, MOVE_LEADER, RACK, FOLLOWER, TRUNCATE, MOVE_COORDINATOR),
    *(FAULTS, FAULT, CLEAR, HOLDS, RELEASE, NOW, MOVE_CLOCK, CLOCK, WAIT, PRESETS, PRESET, ODDITIES, ODD),
    *(REQUESTS, RECORDING),
    *(PARTITIONS, PRODUCERS, TRANSACTIONS, GROUPS, SHARE_PARTITIONS, SESSIONS, CONNECTIONS),
)
