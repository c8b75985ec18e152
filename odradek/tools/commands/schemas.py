"""Implements `odradek schemas`, which lists, shows, registers and checks a schema registry's schemas."""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from odradek.protocol.decoded.json_text import indented
from odradek.tools.commands.errors import DIFFERENT, DONE, MISUNDERSTOOD
from odradek.tools.commands.options import DEFAULT_TIMEOUT_S, add_json, add_list
from odradek.tools.commands.output import headings, print_object, print_rows
from odradek.tools.commands.registry_client import quoted, registry_client
from odradek.tools.commands.schema_options import add_registry

if TYPE_CHECKING:
    from collections.abc import Callable

    from odradek.tools.commands.registry_client import RegistryClient

    Act = Callable[[RegistryClient, argparse.Namespace], int]

TYPES = ("AVRO", "JSON", "PROTOBUF")
PROTOBUF_SUFFIX = ".proto"


def configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(title="actions", metavar="ACTION")
    parser.set_defaults(run=partial(_run_nothing, parser))
    listing = _action(actions, "list", "list the subjects, each with the type of its latest schema", list_)
    add_json(listing)
    showing = _action(actions, "show", "show a schema of a subject, and the numbers of its versions", show)
    _add_subject(showing)
    showing.add_argument("--version", type=int, metavar="N", help="the version; default: the latest one")
    add_json(showing, "print the version as JSON, with the schema as it is stored")
    registering = _action(
        actions, "register", "register a schema as the next version of a subject, if the registry accepts it", register
    )
    _add_schema(registering)
    checking = _action(
        actions,
        "check",
        "check a schema against the versions of a subject and its compatibility level, without registering it",
        check,
    )
    _add_schema(checking)
    for one in (listing, showing, registering, checking):
        add_registry(one)
        one.add_argument(
            "--timeout",
            metavar="S",
            type=float,
            default=DEFAULT_TIMEOUT_S,
            help="how many seconds to wait for an answer; default: %(default)g",
        )


def _action(actions: Any, name: str, help: str, act: Act) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = actions.add_parser(name, help=help, description=f"{help[0].upper()}{help[1:]}.")
    parser.set_defaults(run=partial(_run, act), parser=parser)
    return parser


def _run_nothing(parser: argparse.ArgumentParser, _options: argparse.Namespace) -> int:
    parser.print_help(sys.stderr)
    return MISUNDERSTOOD


def _run(act: Act, options: argparse.Namespace) -> int:
    return act(registry_client(options), options)


def _add_subject(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "subject", metavar="SUBJECT", help="the subject, such as orders-value for the values of the topic orders"
    )


def _add_schema(parser: argparse.ArgumentParser) -> None:
    _add_subject(parser)
    parser.add_argument("file", metavar="FILE", help="the file that contains the schema; - reads standard input")
    parser.add_argument(
        "--type",
        choices=TYPES,
        help=f"the type of the schema; default: PROTOBUF if the file's name ends with {PROTOBUF_SUFFIX}, else AVRO",
    )
    add_list(
        parser,
        "--reference",
        metavar="NAME=SUBJECT:VERSION",
        type=_reference,
        help="a registered schema to which this schema refers by NAME: an Avro full name, the URI of a JSON Schema,"
        " or the path of an import",
    )


def _reference(text: str) -> dict[str, str | int]:
    name, separator, rest = text.rpartition("=")
    subject, _, version = rest.rpartition(":")
    if not separator or not name or not subject or not version.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=SUBJECT:VERSION, as in com.shop.Money=money:1")
    return {"name": name, "subject": subject, "version": int(version)}


def list_(registry: RegistryClient, options: argparse.Namespace) -> int:
    rows = [
        {
            "subject": each["subject"],
            "type": each.get("schemaType") or "AVRO",
            "latest_version": each["version"],
            "id": each["id"],
        }
        for each in registry.ask("GET", "/schemas?latestOnly=true")
    ]
    rows.sort(key=lambda row: str(row["subject"]))
    print_rows(rows, headings("subject type latest_version id"), as_json=options.json, empty="No subjects.")
    return DONE


def show(registry: RegistryClient, options: argparse.Namespace) -> int:
    found = registry.version(options.subject, options.version)
    numbers = registry.ask("GET", f"/subjects/{quoted(options.subject)}/versions")
    if options.json:
        print_object(
            {
                "subject": found.subject,
                "version": found.version,
                "id": found.schema_id,
                "type": found.text.schema_type,
                "references": [each.as_json() for each in found.text.references],
                "schema": found.text.text,
                "versions": numbers,
            }
        )
        return DONE
    print(f"{found.subject}: version {found.version}, id {found.schema_id}, {found.text.schema_type}")
    print(f"all versions: {', '.join(map(str, numbers))}")
    for each in found.text.references:
        print(f"uses {each.name}: {each.subject}, version {each.version}")
    print()
    print(_for_people(found.text.text))
    return DONE


def _for_people(schema: str) -> str:
    """Indents a JSON schema. Returns any other schema, such as a Protobuf schema, unchanged."""
    lines = indented(schema)
    return schema.rstrip("\n") if lines is None else lines


def register(registry: RegistryClient, options: argparse.Namespace) -> int:
    body = _body(options)
    path = f"/subjects/{quoted(options.subject)}"
    registry.ask("POST", f"{path}/versions", body)
    found = registry.ask("POST", path, body)
    print(f"{options.subject}: version {found['version']}, id {found['id']}")
    return DONE


def check(registry: RegistryClient, options: argparse.Namespace) -> int:
    answer = registry.ask(
        "POST", f"/compatibility/subjects/{quoted(options.subject)}/versions?verbose=true", _body(options)
    )
    if answer["is_compatible"]:
        print(f"{options.subject}: the schema is compatible.")
        return DONE
    print(f"{options.subject}: the schema is not compatible. The registry would refuse it:")
    for message in answer.get("messages", ()):
        print(f"- {message}")
    return DIFFERENT


def _body(options: argparse.Namespace) -> dict[str, object]:
    text = sys.stdin.read() if options.file == "-" else Path(options.file).read_text(encoding="utf-8")
    kind = options.type or ("PROTOBUF" if options.file.endswith(PROTOBUF_SUFFIX) else "AVRO")
    return {"schema": text, "schemaType": kind, "references": options.reference}
