"""Defines the options that several commands share, and creates the client configured by these options."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from odradek.tools.commands.errors import DONE, MISUNDERSTOOD
from odradek.tools.commands.target import DEFAULT_BOOTSTRAP, DEFAULT_PROFILE, choose

if TYPE_CHECKING:
    from odradek.client.admin import Admin
    from odradek.client.security.settings import SecuritySettings

DEFAULT_TIMEOUT_S = 15.0
CLIENT_ID = "odradek-cli"

Check = Callable[[argparse.Namespace], object]
Act = Callable[["Admin", argparse.Namespace], Coroutine[Any, Any, None]]


def host_and_port(text: str) -> tuple[str, int]:
    """Parses `HOST:PORT`. Raises ArgumentTypeError."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not HOST:PORT")
    return host.strip("[]"), int(port)


class CommandActions:
    """A command's actions, such as `list` in `odradek topics list`. Each action connects to a cluster."""

    def __init__(self, parser: argparse.ArgumentParser) -> None:
        self.parsers = parser.add_subparsers(title="actions", metavar="ACTION")
        parser.set_defaults(run=partial(_run_nothing, parser))

    @contextmanager
    def add(
        self, name: str, help: str, act: Act, check: Check | None = None, *, json: bool = False, more: str | None = None
    ) -> Iterator[argparse.ArgumentParser]:
        """Adds an action. Yields a parser to which the caller adds the action's own arguments, which come before --json
        and the connection options.

        act    the coroutine function that runs the action with a connected Admin
        check  a function that raises ValueError for contradictory options before anything is sent
        json   whether the action has the option --json
        more   a longer description, if `help` is not enough
        """
        parser = self.parsers.add_parser(name, help=help, description=more or f"{help[0].upper()}{help[1:]}.")
        yield parser
        if json:
            add_json(parser)
        add_connection(parser)
        parser.set_defaults(run=partial(_run, act, check), parser=parser)


def _run_nothing(parser: argparse.ArgumentParser, _options: argparse.Namespace) -> int:
    parser.print_help(sys.stderr)
    return MISUNDERSTOOD


def _run(act: Act, check: Check | None, options: argparse.Namespace) -> int:
    async def connected() -> None:
        async with admin(options, options.timeout * 1000) as connection:
            await act(connection, options)

    if check is not None:
        check(options)
    asyncio.run(connected())
    return DONE


def add_connection(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-b",
        "--bootstrap-server",
        metavar="HOST:PORT",
        help="a broker of the cluster, or several separated by commas. Default: $ODRADEK_BOOTSTRAP,"
        f" $KAFKA_BOOTSTRAP_SERVERS, the profile that $ODRADEK_PROFILE names, the profile {DEFAULT_PROFILE}, or"
        f" {DEFAULT_BOOTSTRAP}",
    )
    parser.add_argument(
        "--profile",
        metavar="NAME",
        help="the cluster and its settings for TLS and SASL, from [NAME] in ~/.config/odradek/profiles",
    )
    parser.add_argument(
        "--command-config", metavar="FILE", help="a file with settings for TLS and SASL, in the format of Kafka's tools"
    )
    parser.add_argument(
        "-X",
        dest="properties",
        metavar="NAME=VALUE",
        type=setting,
        action="append",
        default=[],
        help="a setting for TLS or SASL, such as security.protocol=SSL. It overrides the file. May be repeated",
    )
    parser.add_argument(
        "--timeout",
        metavar="S",
        type=float,
        default=DEFAULT_TIMEOUT_S,
        help="how many seconds to retry transient failures; default: %(default)g",
    )


def add_isolation_level(parser: argparse.ArgumentParser) -> None:
    levels = ("read_committed", "read_uncommitted")
    parser.add_argument("--isolation-level", choices=levels, default=levels[0], help="default: %(default)s")


def add_json(parser: argparse.ArgumentParser, help: str = "print JSON") -> None:
    parser.add_argument("--json", action="store_true", help=help)


def add_list(
    parser: argparse.ArgumentParser, *words: str, metavar: str, help: str, type: Callable[[str], object] = str
) -> None:
    """Adds an option that may be repeated. Its value is a list."""
    help = f"{help}; may be repeated"
    parser.add_argument(*words, action="append", default=[], metavar=metavar, type=type, help=help)


def add_names(parser: argparse.ArgumentParser, kind: str, short: str | None, *, is_needed: bool) -> None:
    """Adds names as positional arguments. As in Kafka's tools, the user can also give them with a repeatable option
    such as `--topic NAME`."""
    taking = parser.add_argument("names", nargs="*", metavar=kind.upper(), help=f"the names of {kind}s")
    words = [f"--{kind}"] if short is None else [short, f"--{kind}"]
    option = parser.add_argument(*words, dest="more_names", action="append", metavar="NAME", help=argparse.SUPPRESS)
    if kind == "topic":
        complete_topics(taking)
        complete_topics(option)
    parser.set_defaults(needed=kind if is_needed else None)


def names(options: argparse.Namespace) -> list[str]:
    """Returns the names in the arguments that `add_names` added, without duplicates. Raises ValueError if a name is
    required and none is given."""
    found = list(dict.fromkeys([*options.names, *(options.more_names or ())]))
    if not found and options.needed:
        raise ValueError(f"give the name of a {options.needed}")
    return found


def add_topic(parser: argparse.ArgumentParser, *, is_required: bool = True, help: str = "the topic") -> None:
    complete_topics(parser.add_argument("-t", "--topic", metavar="TOPIC", required=is_required, help=help))


def complete_topics(action: argparse.Action) -> None:
    """Makes the shell complete this argument with the cluster's topic names."""

    def topics(parsed_args: argparse.Namespace, **_: object) -> Iterable[str]:
        async def ask() -> Iterable[str]:
            async with admin(parsed_args, 1_000) as connection:
                return await connection.list_topics()

        return asyncio.run(ask())

    action.completer = topics  # type: ignore[attr-defined]  # the attribute that argcomplete reads


def client_settings(options: argparse.Namespace) -> dict[str, Any]:
    """Returns the settings that every client needs. Raises ValueError or OSError if a value of `--command-config` or
    `-X` is invalid."""
    choose(options)
    return {"bootstrap_servers": options.bootstrap_server, "client_id": CLIENT_ID, **security(options)}


def security(options: argparse.Namespace) -> SecuritySettings:
    """Returns the client's TLS and SASL settings. Raises ValueError, OSError."""
    choose(options)
    if options.command_config is None and not options.properties and not options.profile_properties:
        return {}
    from odradek.client.security.properties import PROPERTIES, security_settings
    from odradek.client.security.settings import PROTOCOLS
    from odradek.protocol.java_properties import parse_properties

    given = {**options.profile_properties}
    if options.command_config is not None:
        given |= parse_properties(Path(options.command_config).read_text(encoding="utf-8"))
    given |= dict(options.properties)
    protocol = given.get("security.protocol", "PLAINTEXT").upper()
    for name, _ in options.properties:
        if name not in PROPERTIES:
            raise ValueError(_unknown(name))
        for prefix, protocols in (("ssl.", ("SSL", "SASL_SSL")), ("sasl.", ("SASL_PLAINTEXT", "SASL_SSL"))):
            if name.startswith(prefix) and protocol in PROTOCOLS and protocol not in protocols:
                raise ValueError(
                    f"-X {name} has no effect, because security.protocol is {protocol}: add"
                    f" -X security.protocol={protocols[0]} or {protocols[1]}"
                )
    return security_settings(given)


def _unknown(name: str) -> str:
    from odradek.client.security.properties import PROPERTIES, is_of_security
    from odradek.tools.commands.similar_names import did_you_mean

    hint = did_you_mean(name, PROPERTIES)
    if is_of_security(name) or hint:
        return f"-X {name}: there is no such setting.{hint}"
    return f"-X {name}: commands accept only settings for TLS and SASL (security.protocol, ssl.…, sasl.…)"


def admin(options: argparse.Namespace, timeout_ms: float, request_timeout_ms: float | None = None) -> Admin:
    """Creates a client that is not connected yet. Raises ValueError and OSError, like `client_settings`."""
    from odradek.client.admin import Admin

    return Admin(
        **client_settings(options),
        default_api_timeout_ms=timeout_ms,
        request_timeout_ms=timeout_ms if request_timeout_ms is None else request_timeout_ms,
    )


def setting(text: str) -> tuple[str, str]:
    """Parses NAME=VALUE. Used as `type=` of arguments."""
    name, separator, value = text.partition("=")
    if not separator or not name.strip():
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name.strip(), value.strip()


def time_ms(text: str) -> int:
    """Parses an ISO 8601 date or time. Used as `type=` of arguments. As in Kafka's tools, the time is in UTC unless the
    text contains a UTC offset."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        what = "is not a time such as 2026-11-01 or 2026-11-01T12:00+01:00"
        raise argparse.ArgumentTypeError(f"{text!r} {what}") from None
    return int((at if at.tzinfo is not None else at.replace(tzinfo=UTC)).timestamp() * 1_000)
