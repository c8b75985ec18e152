"""Commands about the program itself: the options of `odradek serve`, `odradek completion`, `odradek version`."""

from __future__ import annotations

import argparse

from odradek.tools.commands.errors import DONE


def configure_serve(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `serve` for `--help` only. `odradek.serve` parses them itself, so that a broker starts
    without importing this package."""
    parser.add_argument("--config", metavar="FILE", help="a server.properties file")
    parser.add_argument("--override", action="append", metavar="NAME=VALUE", help="one setting; may be repeated")
    parser.add_argument(
        "--data-dir",
        metavar="DIR",
        help="the data directory; created if missing. Default: log.dirs if set, else ~/.local/share/odradek",
    )
    parser.add_argument("--port", metavar="N", help="the port of the first listener; 0 takes any free port")
    parser.add_argument(
        "--http-port",
        metavar="N",
        help="the port of the page, metrics and health checks; 0 takes any free port, -1 switches HTTP off. Default:"
        " 9644, or any free port if that is taken",
    )
    parser.add_argument(
        "--ready-file",
        metavar="FILE",
        help="written atomically when connections are accepted: JSON with host, port, listeners, http_port, node_id,"
        " cluster_id, data_dir, pid, start_ms, variant",
    )
    parser.add_argument(
        "--ephemeral", action="store_true", help="use a fresh data directory that is removed with the process"
    )
    parser.add_argument(
        "--control",
        action="store_true",
        help="let tests control it over HTTP: fresh clusters, faults, holds, the clock (docs/testing.md)",
    )
    parser.add_argument(
        "--faults",
        metavar="FILE",
        help="begin with these rules: one, or a list of them, as JSON or YAML; with --control",
    )
    parser.add_argument(
        "--odd", metavar="SEED", help="give lawful answers that are rare, the same ones for a seed; with --control"
    )
    parser.add_argument(
        "--emulate",
        metavar="RELEASE",
        help="offer what Kafka 3.9, 4.0, 4.3 or 4.4 does, in a new directory; with --control",
    )
    parser.add_argument(
        "--record",
        metavar="FILE",
        help="write what clients send and get into FILE, for judge and inspect; secrets of logins are left out",
    )
    parser.add_argument(
        "--log-format",
        choices=("text", "json"),
        default="text",
        help="how lines of the log look; json is one object a line, with time, level, logger, message, pid, exception."
        " KAFKA_LOG4J_ROOT_LOGLEVEL sets the level (INFO), kafka-configs --entity-type broker-loggers at run time",
    )


def configure_health(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `health` for `--help` only, like `configure_serve`: it runs every few seconds."""
    parser.add_argument(
        "--http-port", metavar="N", help="the broker's HTTP port; default: that of its configuration, or 9644"
    )


def configure_completion(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=("bash", "zsh", "fish"), help="the shell to print the script of")
    parser.set_defaults(run=print_completion)


def print_completion(options: argparse.Namespace) -> int:
    from argcomplete.shell_integration import shellcode

    print(shellcode(["odradek"], shell=options.shell))
    return DONE


def configure_version(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(run=print_version)


def print_version(_options: argparse.Namespace) -> int:
    from odradek import __version__
    from odradek.protocol.variant import variant_for_people

    print(f"odradek {__version__} ({variant_for_people()})")
    return DONE
