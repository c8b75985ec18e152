"""`odradek control`: clusters, faults, holds, the clock and presets of a broker with `--control`. docs/testing.md says
what each call does.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from odradek.tools.commands.errors import DIFFERENT, DONE, NOT_FOUND, NOT_PERMITTED, REFUSED, UNREACHABLE, CommandError
from odradek.tools.commands.options import setting
from odradek.tools.commands.output import print_object

if TYPE_CHECKING:
    from odradek.testing.sync import Refused

DEFAULT_ADDRESS = "localhost:9644"
ADDRESS, TOKEN = "ODRADEK_CONTROL", "ODRADEK_TOKEN"  # of the environment, as for fixtures
STATUS_OF = {401: NOT_PERMITTED, 403: NOT_PERMITTED, 404: NOT_FOUND}
Options = argparse.Namespace
AddArguments = Callable[[argparse.ArgumentParser], None]


@dataclass(frozen=True, slots=True)
class ControlCall:
    """One call of the interface.

    path     below that of the cluster, or of all where `is_of_all`; {names} are options
    body     made of the options; None for none
    query    options that choose, by their name there
    """

    name: str
    help: str
    method: str
    path: str
    arguments: AddArguments
    body: Callable[[Options], Any] | None = None
    query: tuple[str, ...] = ()
    is_of_all: bool = False


def _nothing(parser: argparse.ArgumentParser) -> None:
    """Adds no argument."""


def _name(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME")


def _name_if_any(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", metavar="NAME", help="default: all of them")


def _values(parser: argparse.ArgumentParser) -> None:
    words = "numbers, true and false are JSON's, and so are quoted texts"
    parser.add_argument("values", nargs="*", type=setting, metavar="NAME=VALUE", help=words)


def _preset(parser: argparse.ArgumentParser) -> None:
    _name(parser)
    _values(parser)


def _wait(parser: argparse.ArgumentParser) -> None:
    _values(parser)
    parser.add_argument("--timeout-ms", type=int, default=10_000, metavar="N", help="default: %(default)d")


def _create(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("settings", nargs="*", type=setting, metavar="SETTING=VALUE", help="of its broker")
    parser.add_argument("--fork", metavar="ID", help="the cluster whose log, coordinators and clock it begins with")
    parser.add_argument("--nodes", type=_nodes, metavar="N | ID,ID", help="how many nodes over one log, or their ids")
    words = "a topic that is there at once; may be given again"
    parser.add_argument("--topic", action="append", type=setting, default=[], metavar="NAME=PARTITIONS", help=words)
    parser.add_argument("--ttl-s", type=int, metavar="N", help="deletes it after so many seconds")
    parser.add_argument("--preset", metavar="NAME", help="the rare state that it begins in: see `presets`")
    parser.add_argument("--emulate", metavar="RELEASE", help="versions, features and defaults of Kafka 3.9, 4.0 or 4.3")
    words = 'a listener, such as {"protocol": "SASL_SSL", "port": 9093}; may be given again'
    parser.add_argument("--listener", action="append", type=_json, default=[], metavar="JSON", help=words)
    words = "a user of its listeners; may be given again"
    parser.add_argument("--user", action="append", type=setting, default=[], metavar="NAME=PASSWORD", help=words)


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text} is no JSON: {error}") from None


def _nodes(text: str) -> int | list[int]:
    return [int(each) for each in text.split(",")] if "," in text else int(text)


def _created(options: Options) -> Any:
    wanted = {name: getattr(options, name) for name in ("fork", "nodes", "ttl_s", "preset", "emulate")}
    topics = {name: _value(partitions) for name, partitions in options.topic}
    wanted |= {"listeners": options.listener or None, "users": dict(options.user) or None}
    told = {name: value for name, value in wanted.items() if value is not None}
    return {"settings": dict(options.settings), "topics": topics, **told}


def _ttl(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("ttl_s", type=int, metavar="SECONDS")


def _node(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("node", type=int, metavar="NODE")


def _stop_node(parser: argparse.ArgumentParser) -> None:
    _node(parser)
    parser.add_argument("--unclean", action="store_true", help="kill it: metadata notices 9 s later")


def _cut_off(parser: argparse.ArgumentParser) -> None:
    _node(parser)
    parser.add_argument("client_id", metavar="CLIENT")


def _leader(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument("partition", type=int, metavar="PARTITION")
    _node(parser)


def _truncate(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument("partition", type=int, metavar="PARTITION")
    parser.add_argument("offset", type=int, metavar="OFFSET")
    parser.add_argument("--node", type=int, metavar="NODE", help="leads from then on; default: whoever leads")


def _rack(parser: argparse.ArgumentParser) -> None:
    _node(parser)
    parser.add_argument("rack", nargs="?", metavar="RACK", help="default: in none")


def _follower(parser: argparse.ArgumentParser) -> None:
    _leader(parser)
    parser.add_argument("end", type=int, nargs="?", metavar="OFFSET", help="default: the end of the log")


def _coordinator(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("type", choices=("group", "transaction", "share"))
    parser.add_argument("key", metavar="KEY", help="the group, transactional id, or GROUP:TOPIC-ID:PARTITION")
    _node(parser)


def _to_node(options: Options) -> Any:
    return {"node": options.node}


def _is_clean(options: Options) -> Any:
    return {"clean": not options.unclean}


def _restart(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--unclean", action="store_true", help="kill it first")


def _rule(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("rule", metavar="JSON | @FILE | -", help="a rule or a list of them")


def _parsed_rule(options: Options) -> Any:
    told = options.rule
    if told == "-":
        text = sys.stdin.read()
    else:
        text = Path(told[1:]).read_text(encoding="utf-8") if told.startswith("@") else told
    try:
        return json.loads(text)
    except ValueError as error:
        raise ValueError(f"the rule is no JSON: {error}") from None


def _clock(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("how", choices=("freeze", "resume", "advance", "set"))
    parser.add_argument("ms", nargs="?", type=int, metavar="MS", help="by how much to advance; what to set it to")


def _clock_body(options: Options) -> Any:
    if (options.ms is None) != (options.how in ("freeze", "resume")):
        raise ValueError(f"clock {options.how} takes {'no number' if options.ms is not None else 'milliseconds'}")
    return {} if options.ms is None else {"ms": options.ms}


def _requests(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--api", metavar="NAME", help="requests of this API, as EndTxn")
    parser.add_argument("--client-id", metavar="NAME", help="requests of this client.id")
    parser.add_argument("--since", type=int, metavar="NUMBER", help="what came behind this one")
    parser.add_argument("--limit", type=int, metavar="N", help="the newest so many")


def _page(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--skip", type=int, metavar="N", help="leave the first so many out")
    parser.add_argument("--limit", type=int, metavar="N", help="at most so many")


def _seed(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("seed", type=int, metavar="SEED", help="0: no more")


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _told(options: Options) -> dict[str, Any]:
    return {name: _value(value) for name, value in options.values}


def _empty(options: Options) -> Any:
    return {}


def _named(options: Options) -> Any:
    return {"name": options.name}


CALLS = (
    ControlCall("clusters", "list the clusters", "GET", "/clusters", _nothing, is_of_all=True),
    ControlCall("create", "make a cluster", "POST", "/clusters", _create, _created, is_of_all=True),
    ControlCall("show", "show the cluster, its nodes and checkpoints", "GET", "", _nothing),
    ControlCall("delete", "delete the cluster", "DELETE", "", _nothing),
    ControlCall("checkpoint", "copy its log and clock", "POST", "/checkpoint", _name, _named),
    ControlCall("rewind", "go back to a checkpoint", "POST", "/rewind", _name, _named),
    ControlCall("crash", "leave on the disk what kill -9 leaves", "POST", "/crash", _nothing, _empty),
    ControlCall("restart", "start it again", "POST", "/restart", _restart, _is_clean),
    ControlCall("lease", "let it live so long", "POST", "/lease", _ttl, lambda options: {"ttl_s": options.ttl_s}),
    ControlCall("stop-node", "stop or kill a node", "POST", "/nodes/{node}/stop", _stop_node, _is_clean),
    ControlCall("start-node", "start a node on its port", "POST", "/nodes/{node}/start", _node, _empty),
    ControlCall(
        "cut-off",
        "make a node unreachable for a client.id",
        "POST",
        "/nodes/{node}/unreachable_for",
        _cut_off,
        lambda options: {"client_id": options.client_id},
    ),
    ControlCall("move-leader", "move a leader", "POST", "/partitions/{topic}/{partition}/leader", _leader, _to_node),
    ControlCall(
        "rack",
        "put a node in a rack, whose consumers read there",
        "POST",
        "/nodes/{node}/rack",
        _rack,
        lambda options: {"rack": options.rack},
    ),
    ControlCall(
        "follower",
        "say how far a follower has got",
        "POST",
        "/partitions/{topic}/{partition}/follower",
        _follower,
        lambda options: {"node": options.node, "end": options.end},
    ),
    ControlCall(
        "truncate",
        "cut a log, as an unclean election does",
        "POST",
        "/partitions/{topic}/{partition}/truncate",
        _truncate,
        lambda options: {"offset": options.offset, "node": options.node},
    ),
    ControlCall("move-coordinator", "move a coordinator", "POST", "/coordinators/{type}/{key}", _coordinator, _to_node),
    ControlCall("faults", "list the rules, and how often each matched", "GET", "/faults", _nothing),
    ControlCall("fault", "add a rule", "POST", "/faults", _rule, _parsed_rule),
    ControlCall("clear", "delete rules", "DELETE", "/faults/{name}", _name_if_any),
    ControlCall("holds", "list what waits", "GET", "/holds", _nothing),
    ControlCall("release", "let what waits go on", "POST", "/holds/{name}/release", _name, _empty),
    ControlCall("now", "show the clock", "GET", "/clock", _nothing),
    ControlCall("clock", "freeze, resume, advance or set the clock", "POST", "/clock/{how}", _clock, _clock_body),
    ControlCall(
        "wait",
        "return when a condition is true",
        "POST",
        "/wait",
        _wait,
        lambda options: {**_told(options), "timeout_ms": options.timeout_ms},
    ),
    ControlCall("presets", "list rare states", "GET", "/presets", _nothing),
    ControlCall("preset", "bring a rare state about", "POST", "/presets/{name}", _preset, _told),
    ControlCall("oddities", "tell which lawful answers that are rare were given", "GET", "/odd", _nothing),
    ControlCall("odd", "give such answers", "POST", "/odd", _seed, lambda options: {"seed": options.seed}),
    ControlCall(
        "requests",
        "print the last requests and answers",
        "GET",
        "/requests",
        _requests,
        query=("api", "client_id", "since", "limit"),
    ),
    *(
        ControlCall(name.replace("_", "-"), f"list {what}", "GET", f"/{name}", _page, query=("skip", "limit"))
        for name, what in (
            ("partitions", "the partitions, with leaders and offsets"),
            ("producers", "what partitions know of producers"),
            ("transactions", "the transactional ids"),
            ("groups", "the groups of every type, with members"),
            ("share_partitions", "share partitions, with records in flight"),
            ("sessions", "fetch and share sessions"),
            ("connections", "the connections"),
        )
    ),
)


def configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    for call in CALLS:
        one = actions.add_parser(call.name, help=call.help)
        call.arguments(one)
        if not call.is_of_all:
            one.add_argument("-C", "--cluster", default="default", metavar="ID", help="default: %(default)s")
        one.add_argument(
            "--http", metavar="HOST:PORT", help=f"its HTTP port; default: ${ADDRESS}, else {DEFAULT_ADDRESS}"
        )
        one.add_argument("--token-file", type=Path, metavar="FILE", help=f"holds odradek.http.token; default: ${TOKEN}")
        one.set_defaults(run=partial(run, call))


def run(call: ControlCall, options: Options) -> int:
    from odradek.testing.sync import Odradek, Refused

    address = options.http or os.environ.get(ADDRESS, DEFAULT_ADDRESS)
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise ValueError(f"--http or ${ADDRESS}, {address}: it is HOST:PORT")
    body = None if call.body is None else call.body(options)
    file = options.token_file
    token = os.environ.get(TOKEN) if file is None else file.read_text(encoding="utf-8").strip()
    try:
        status, answer = Odradek(host, int(port), token=token).call(
            call.method, path_of(call, options), body, also=frozenset({408})
        )
    except Refused as refused:
        raise CommandError(_words(refused), STATUS_OF.get(refused.status, REFUSED)) from None
    except ConnectionError as error:
        raise CommandError(f"nobody answers at {address}: {error.strerror or error}", UNREACHABLE) from None
    except ValueError:
        raise CommandError(f"what answers at {address} has no control interface", REFUSED) from None
    print_object(answer)
    return DIFFERENT if status == 408 else DONE


def path_of(call: ControlCall, options: Options) -> str:
    names = {name: quote(str(value), safe="") for name, value in vars(options).items() if isinstance(value, str | int)}
    path = call.path.removesuffix("/{name}") if vars(options).get("name", "") is None else call.path
    chosen = {name: getattr(options, name) for name in call.query if getattr(options, name) is not None}
    below = "" if call.is_of_all else f"/clusters/{names['cluster']}"
    return below + path.format(**names) + (f"?{urlencode(chosen)}" if chosen else "")


def _words(refused: Refused) -> str:
    allowed = refused.problem.get("allowed")
    return refused.detail if allowed is None else f"{refused.detail}\nallowed: {allowed}"
