"""The options that name a schema registry, and those of `odradek consume` and `produce` that use it. This module does
not import the registry's client, so that commands that do not use a registry start fast."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Final

VARIABLE: Final = "ODRADEK_SCHEMA_REGISTRY"
DEFAULT_URL: Final = "http://localhost:8081"
# The formats of the options, and the schema type that each requires. "schema" accepts them all.
TYPES: Final[Mapping[str, str | None]] = {"avro": "AVRO", "json-schema": "JSON", "protobuf": "PROTOBUF", "schema": None}


def add_registry(parser: argparse.ArgumentParser, prefix: str = "") -> None:
    """Adds the options that name a registry. Commands that connect to a broker as well have the prefix `registry-`."""
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
    """Adds --value-format and --key-format, and the options that name the registry.

    help  describes the options; {part} stands for key or value
    """
    for part in ("value", "key"):
        words = help.format(part=part)
        parser.add_argument(
            f"--{part}-format",
            choices=tuple(TYPES),
            help=f"{words}; `schema` accepts all types. Default: the bytes are not changed",
        )
    add_registry(parser, "registry-")


def formats_of(options: argparse.Namespace) -> dict[str, str]:
    """Returns the formats that the user gave, by the part of a record: key, value."""
    given = {"key": options.key_format, "value": options.value_format}
    return {part: wanted for part, wanted in given.items() if wanted is not None}
