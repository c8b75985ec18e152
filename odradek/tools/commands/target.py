"""Determines the cluster that a command connects to. `-b`, a named profile or the environment specifies it; otherwise,
its address is localhost:9092.

| source | used if |
|---|---|
| `-b`, `--bootstrap-server` | always |
| `--profile NAME` | it is given; with `-b`, only the profile's TLS and SASL settings are used |
| `ODRADEK_BOOTSTRAP`, then `KAFKA_BOOTSTRAP_SERVERS` | none of the above is given |
| the profile that `ODRADEK_PROFILE` names, then the profile `default` | none of the above is given |
| `localhost:9092` | none of the above is given |

Profiles are sections of one file. A section has the same lines as a `client.properties` file:

    [staging]
    bootstrap.servers=kafka.staging.example:9093
    security.protocol=SSL
    ssl.ca.location=/etc/ssl/staging.pem

A profile's settings are never sent to an address chosen by another source, unless `--profile` names the profile.
"""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Mapping
from pathlib import Path

DEFAULT_BOOTSTRAP = "localhost:9092"
VARIABLES = ("ODRADEK_BOOTSTRAP", "KAFKA_BOOTSTRAP_SERVERS")
PROFILE_VARIABLE = "ODRADEK_PROFILE"
DEFAULT_PROFILE = "default"
BOOTSTRAP = "bootstrap.servers"
NOBODY = "no broker can be reached"
WHERE_A_BROKER_IS = "Start one with `odradek serve`, or name another one with -b or ODRADEK_BOOTSTRAP."
SECTION = r"(?m)^[ \t]*\[([^\]\n]+)\][ \t]*$"


def profiles_file(environ: Mapping[str, str]) -> Path:
    """Returns the path of the file that contains the profiles. The file need not exist."""
    home = environ.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
    return Path(home, "odradek", "profiles")


def choose(options: argparse.Namespace, environ: Mapping[str, str] = os.environ) -> None:
    """Chooses the cluster for a command, and sets `bootstrap_server`, `is_default_bootstrap` and `profile_properties`
    in its options. Does nothing if they are already set. Raises ValueError if the profile does not exist, or OSError if
    the profiles file cannot be read."""
    if "profile_properties" in options:
        return
    options.profile_properties = {}
    if options.profile is not None:
        options.profile_properties = _profile(options.profile, environ)
        options.bootstrap_server = options.bootstrap_server or options.profile_properties.get(BOOTSTRAP)
    for variable in VARIABLES:
        options.bootstrap_server = options.bootstrap_server or environ.get(variable)
    if not options.bootstrap_server and options.profile is None:
        named = environ.get(PROFILE_VARIABLE)
        options.profile_properties = _profile(named or DEFAULT_PROFILE, environ, must_exist=bool(named))
        options.bootstrap_server = options.profile_properties.get(BOOTSTRAP)
    options.is_default_bootstrap = not options.bootstrap_server
    options.bootstrap_server = options.bootstrap_server or DEFAULT_BOOTSTRAP


def typed_connection(options: argparse.Namespace, typed_bootstrap: str | None) -> list[str]:
    """Returns the options that choose the cluster, as the user typed them. Leaves out `-X`, because its value can be a
    secret."""
    given = (("-b", typed_bootstrap), ("--profile", options.profile), ("--command-config", options.command_config))
    return [word for option, value in given if value is not None for word in (option, value)]


def _profile(name: str, environ: Mapping[str, str], *, must_exist: bool = True) -> Mapping[str, str]:
    path = profiles_file(environ)
    try:
        found = parse_profiles(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        found = {}
    if name in found or not must_exist:
        return found.get(name, {})
    from odradek.tools.commands.similar_names import did_you_mean

    if not found:
        raise ValueError(f"there is no profile {name!r}: {path} does not exist or has no [section]")
    raise ValueError(
        f"there is no profile {name!r} in {path}.{did_you_mean(name, found)} The file has the profiles"
        f" {', '.join(found)}"
    )


def parse_profiles(text: str) -> dict[str, dict[str, str]]:
    """Returns each profile's properties, keyed by the profile's name. Ignores lines before the first section."""
    from odradek.protocol.java_properties import parse_properties

    parts = re.split(SECTION, text)
    return {name.strip(): parse_properties(lines) for name, lines in zip(parts[1::2], parts[2::2], strict=True)}
