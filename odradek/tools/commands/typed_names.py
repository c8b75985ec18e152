"""Rewrites messages for the user: shows options as the user typed them, and completes suggested commands so that they
can be pasted."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Mapping

COMMAND = re.compile(r"`(odradek (?!serve\b|certs\b)[^`]+)`")

# For each client setting, the property names that commands accept: librdkafka's name, then Java's.
TYPED_NAMES: Mapping[str, tuple[str, ...]] = {
    "security_protocol": ("security.protocol",),
    "ssl_cafile": ("ssl.ca.location", "ssl.truststore.location"),
    "ssl_capassword": ("ssl.truststore.password",),
    "ssl_cadata": ("ssl.ca.pem", "ssl.truststore.certificates"),
    "ssl_certfile": ("ssl.certificate.location", "ssl.keystore.location"),
    "ssl_certdata": ("ssl.certificate.pem", "ssl.keystore.certificate.chain"),
    "ssl_keyfile": ("ssl.key.location",),
    "ssl_password": ("ssl.key.password", "ssl.keystore.password"),
    "ssl_check_hostname=False": ("ssl.endpoint.identification.algorithm=none",),
    "sasl_mechanism": ("sasl.mechanism", "sasl.mechanisms"),
    "sasl_username": ("sasl.username",),
    "sasl_password": ("sasl.password",),
    "sasl_token": ("sasl.oauthbearer.token.endpoint.url",),
}
LONGEST_FIRST = "|".join(sorted(TYPED_NAMES, key=len, reverse=True))
CLIENT_NAME = re.compile(r"\b(?:" + LONGEST_FIRST + ")")


def as_typed(text: str, options: argparse.Namespace) -> str:
    """Replaces the names of client settings in a message with the names of the properties that the user specified or
    could specify."""
    typed = {name for name, _ in options.properties}
    in_files = {*options.profile_properties}
    if options.command_config is not None:
        in_files |= _names_in(options.command_config)

    def property_of(match: re.Match[str]) -> str:
        names = TYPED_NAMES[match[0]]
        if in_file := [name for name in names if name in in_files and name not in typed]:
            return in_file[0]
        return f"-X {next((name for name in names if name in typed), names[0])}"

    return CLIENT_NAME.sub(property_of, text)


def option_of_file(file: str, options: argparse.Namespace) -> str:
    """Returns the option or property whose value is this file, followed by a space or `=`. Returns an empty string if
    no option or property has this value."""
    if file == options.command_config:
        return "--command-config "
    if typed := [name for name, value in options.properties if value == file]:
        return f"-X {typed[-1]}="
    return next((f"{name}=" for name, value in options.profile_properties.items() if value == file), "")


def _names_in(file: str) -> set[str]:
    from odradek.protocol.java_properties import parse_properties

    try:
        with open(file, encoding="utf-8") as content:
            return {*parse_properties(content.read())}
    except (OSError, UnicodeDecodeError):
        return set()


def with_connection(text: str, words: Iterable[str]) -> str:
    """Adds the user's connection options to each command in backticks, so that it can be pasted."""
    import shlex  # imported here, because only an error message needs it

    typed = shlex.join(words)
    return COMMAND.sub(lambda command: f"`{command[1]} {typed}`", text) if typed else text
