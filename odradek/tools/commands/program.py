"""Commands about the program itself: the options of `odradek serve`, `odradek completion` and `odradek version`."""

from __future__ import annotations

import argparse

from odradek.tools.commands.errors import DONE


def configure_serve(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `serve`, for use by `--help` only. `odradek.serve` parses the options itself, so that a
    broker can start without importing this package."""
    parser.add_argument("--config", metavar="FILE", help="a server.properties file")
    parser.add_argument(
        "--override", action="append", metavar="NAME=VALUE", help="a setting, such as num.partitions=3; may be repeated"
    )
    parser.add_argument(
        "--data-dir",
        metavar="DIR",
        help="the data directory, which is created if it does not exist. Default: log.dirs, or ~/.local/share/odradek",
    )
    parser.add_argument("--port", metavar="N", help="the port of the first listener; 0 takes any free port")
    parser.add_argument(
        "--http-port",
        metavar="N",
        help="the port of the page, metrics and health checks; 0 takes any free port, -1 switches HTTP off. Default:"
        " 9644, or any free port if that is taken",
    )
    parser.add_argument(
        "--topic",
        action="append",
        metavar="NAME:PARTITIONS:SETTING=VALUE",
        help="create a topic unless it exists, such as orders:6:cleanup.policy=compact; may be repeated",
    )
    parser.add_argument(
        "--seed",
        metavar="FILE",
        help="create the topics, records, offsets of groups, users and ACLs of this YAML or JSON file, unless they"
        " exist (docs/seed.md)",
    )
    parser.add_argument(
        "--ready-file",
        metavar="FILE",
        help="write this file as soon as clients can connect. It contains a JSON object with host, port, listeners,"
        " http_port, node_id, cluster_id, data_dir, pid, start_ms and variant",
    )
    parser.add_argument(
        "--ephemeral", action="store_true", help="use a new temporary data directory, and remove it on exit"
    )
    parser.add_argument(
        "--control",
        action="store_true",
        help="let tests control the broker over HTTP, with new clusters, faults, holds and the clock (docs/testing.md)",
    )
    parser.add_argument(
        "--faults",
        metavar="FILE",
        help="start with these fault rules: one rule or a list, as JSON or YAML. Implies --control",
    )
    parser.add_argument(
        "--odd",
        metavar="SEED",
        help="give some answers that are lawful but rare; the same seed chooses the same answers. Implies --control",
    )
    parser.add_argument(
        "--emulate",
        metavar="RELEASE",
        help="behave like Kafka 3.9, 4.0, 4.3 or 4.4; needs a new data directory. Implies --control",
    )
    parser.add_argument(
        "--record",
        metavar="FILE",
        help="record all requests and responses in FILE, which `odradek judge`, `replay` and `inspect` can read."
        " Passwords are left out",
    )
    parser.add_argument(
        "--log-format",
        choices=("text", "json"),
        default="text",
        help="the format of the log. json prints an object in each line, with time, level, logger, message, pid and"
        " exception. KAFKA_LOG4J_ROOT_LOGLEVEL sets the level (default: INFO); `odradek configs alter --broker-logger`"
        " changes it at run time",
    )


def configure_health(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `health`, for use by `--help` only. Another module parses them, so that `health`, which runs
    every few seconds, need not import this package."""
    parser.add_argument(
        "--http-port", metavar="N", help="the broker's HTTP port; default: that of its configuration, or 9644"
    )


def configure_completion(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=("bash", "zsh", "fish"), help="the shell")
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
