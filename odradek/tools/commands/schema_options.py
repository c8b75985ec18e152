"""Defines the options that specify a schema registry, and the options of `odradek consume` and `produce` that need one.
Does not import the registry client, so that commands that use no registry start quickly."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Final

from odradek.client.schema_registry.address import DEFAULT_URL, VARIABLE

# Values of the format options, with the schema type that each of them requires. "schema" accepts all types.
TYPES: Final[Mapping[str, str | None]] = {"avro": "AVRO", "json-schema": "JSON", "protobuf": "PROTOBUF", "schema": None}


def add_registry(parser: argparse.ArgumentParser, prefix: str = "") -> None:
    """Adds the options that specify a registry. Commands that also connect to a broker pass the prefix `registry-`."""
    parser.add_argument(
        "--registry", metavar="URL", help=f"the schema registry. Default: ${VARIABLE}, or {DEFAULT_URL}"
    )
    parser.add_argument(
        f"--{prefix}user", dest="registry_user", metavar="NAME", help="the user who logs in to the registry"
    )
    parser.add_argument(
        f"--{prefix}password-file",
        dest="registry_password_file",
        metavar="FILE",
        help="a file whose first line is the password of this user",
    )


def add_formats(parser: argparse.ArgumentParser, help: str) -> None:
    """Adds --value-format and --key-format, and the options that specify the registry.

    help  describes the format options; {part} is replaced by key or value
    """
    for part in ("value", "key"):
        words = help.format(part=part)
        parser.add_argument(
            f"--{part}-format",
            choices=tuple(TYPES),
            help=f"{words}; `schema` accepts every type of schema. Default: the bytes are not changed",
        )
    add_registry(parser, "registry-")


def formats_of(options: argparse.Namespace) -> dict[str, str]:
    """Returns the formats that the user specified, keyed by part of the record: key, value."""
    given = {"key": options.key_format, "value": options.value_format}
    return {part: value for part, value in given.items() if value is not None}
