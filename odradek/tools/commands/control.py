"""Implements `odradek control`, which makes any control interface call from a shell.

The actions, arguments and options are derived from the rows of `odradek/control_calls/table.py`. docs/testing.md
explains each call.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from odradek.control_calls.call import CallField, CallScope, ControlCall, FieldKind
from odradek.control_calls.table import CALLS, CLOCK
from odradek.tools.commands.errors import DIFFERENT, DONE, NOT_FOUND, NOT_PERMITTED, REFUSED, UNREACHABLE, CommandError
from odradek.tools.commands.options import setting
from odradek.tools.commands.output import print_object

if TYPE_CHECKING:
    from odradek.testing.sync import Refused

DEFAULT_ADDRESS = "localhost:9644"
PAIRS = "values"  # name for the arguments of a call that accepts arbitrary fields
ADDRESS, TOKEN = "ODRADEK_CONTROL", "ODRADEK_TOKEN"  # environment variables, also used by test fixtures
STATUS_OF = {401: NOT_PERMITTED, 403: NOT_PERMITTED, 404: NOT_FOUND}
Options = argparse.Namespace


def configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    for call in CALLS:
        if call.action is None:
            continue
        one = actions.add_parser(call.action, help=call.words)
        for field in call.path_fields:
            _add_field(one, field)
        if call.document is not None:
            _add_field(one, call.document)
        if call.has_any_field:
            words = (
                "a parameter of the preset; a VALUE that is JSON (a number, true, false, a quoted string) is read"
                " as JSON"
            )
            one.add_argument(PAIRS, nargs="*", type=setting, metavar="NAME=VALUE", help=words)
        for field in (*(call.body or ()), *call.query):
            if field.metavar or field.option:
                _add_field(one, field)
        if call.scope is not CallScope.PROCESS:
            one.add_argument(
                "-C", "--cluster", default="default", metavar="ID", help="the id of the cluster; default: %(default)s"
            )
        one.add_argument(
            "--http",
            metavar="HOST:PORT",
            help=f"the HTTP port of the broker; default: ${ADDRESS}, or {DEFAULT_ADDRESS}",
        )
        one.add_argument(
            "--token-file",
            type=Path,
            metavar="FILE",
            help=f"a file that contains odradek.http.token; default: ${TOKEN}",
        )
        one.set_defaults(run=partial(run, call))


def _add_field(parser: argparse.ArgumentParser, field: CallField) -> None:
    """Adds the command-line argument or option that sets a field of a call. Its name is the field's name."""
    words = field.words or None
    if field.kind is FieldKind.SWITCH:
        parser.add_argument(str(field.option), dest=field.name, action="store_false", help=words)
        return
    more: dict[str, Any] = {"help": words, "type": PARSED.get(field.kind, str)}
    if "enum" in field.schema:
        more["choices"] = tuple(field.schema["enum"])
    else:
        more["metavar"] = field.metavar
    is_repeated = field.kind in REPEATED
    if field.option is None:
        if is_repeated:
            more["nargs"] = "*"
        elif not (field.is_required or field.is_asked):
            more["nargs"] = "?"
        parser.add_argument(field.name, **more)
        return
    if is_repeated:
        more |= {"action": "append", "default": []}
    if field.default is not None:
        more |= {"default": field.default, "help": f"{words}; default: %(default)d"}
    parser.add_argument(field.option, dest=field.name, **more)


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text} is not JSON: {error}") from None
    except RecursionError:
        raise argparse.ArgumentTypeError("the JSON is nested too deeply") from None


def _numbers(text: str) -> int | list[int]:
    return [int(each) for each in text.split(",")] if "," in text else int(text)


def _text(given: str) -> str:
    """Returns a text given literally, as @FILE, or as - for standard input. Raises ValueError, OSError."""
    if given == "-":
        return sys.stdin.read()
    return Path(given[1:]).read_text(encoding="utf-8") if given.startswith("@") else given


def _document(given: str) -> Any:
    """Parses a rule given as JSON, as @FILE, or as - for standard input. Raises ValueError, OSError."""
    try:
        return json.loads(_text(given))
    except ValueError as error:
        raise ValueError(f"the rule is not JSON: {error}") from None
    except RecursionError:
        raise ValueError("the rule is nested too deeply") from None


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def values_of(call: ControlCall, options: Options) -> dict[str, Any]:
    """Returns the values that the command line gives for the call's fields. Raises ValueError, OSError."""
    values: dict[str, Any] = {name: _value(value) for name, value in getattr(options, PAIRS, ())}
    fields = (*call.path_fields, *(call.body or ()), *call.query, *((call.document,) if call.document else ()))
    for field in fields:
        if not hasattr(options, field.name):
            continue
        value = getattr(options, field.name)
        match field.kind:
            case FieldKind.DOCUMENT:
                value = _document(value)
            case FieldKind.TEXT_DOCUMENT:
                value = None if value is None else _text(value)
            case FieldKind.TEXT_PAIRS:
                value = dict(value)
            case FieldKind.JSON_PAIRS:
                value = {name: _value(each) for name, each in value}
        if field.is_nullable:
            values[field.name] = None if field.kind in REPEATED and not value else value
        elif value is not None:
            values[field.name] = value
    if call is CLOCK and ("ms" not in values) != (values["how"] in ("freeze", "resume")):
        words = "no number" if "ms" in values else "milliseconds"
        raise ValueError(f"clock {values['how']} needs {words}")
    return values


PARSED: Mapping[FieldKind, Callable[[str], Any]] = {
    FieldKind.NUMBER: int,
    FieldKind.TEXT_PAIRS: setting,
    FieldKind.JSON_PAIRS: setting,
    FieldKind.JSON_LIST: _json,
    FieldKind.NUMBER_OR_NUMBERS: _numbers,
}
REPEATED = frozenset({FieldKind.TEXT_PAIRS, FieldKind.JSON_PAIRS, FieldKind.JSON_LIST})


def run(call: ControlCall, options: Options) -> int:
    from odradek.testing.sync import Odradek, Refused

    address = options.http or os.environ.get(ADDRESS, DEFAULT_ADDRESS)
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise ValueError(f"{address!r}, from --http or ${ADDRESS}, is not HOST:PORT")
    method, path, body = call.request(values_of(call, options))
    if call.scope is not CallScope.PROCESS:
        path = f"/clusters/{quote(options.cluster, safe='')}{path}"
    file = options.token_file
    token = os.environ.get(TOKEN) if file is None else file.read_text(encoding="utf-8").strip()
    try:
        status, answer = Odradek(host, int(port), token=token).call(method, path, body, also=frozenset(call.also or ()))
    except Refused as refused:
        raise CommandError(_words(refused), STATUS_OF.get(refused.status, REFUSED)) from None
    except ConnectionError as error:
        raise CommandError(f"there is no broker at {address}: {error.strerror or error}", UNREACHABLE) from None
    except ValueError:
        raise CommandError(
            f"the program at {address} has no control interface: start `odradek serve --control`", REFUSED
        ) from None
    print_object(answer)
    return DIFFERENT if status == 408 else DONE


def _words(refused: Refused) -> str:
    allowed = refused.problem.get("allowed")
    return refused.detail if allowed is None else f"{refused.detail}\nallowed: {allowed}"
