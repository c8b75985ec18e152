"""The help of `odradek serve`, whose options `odradek.serve` reads itself to start without this package."""

from __future__ import annotations

import argparse


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config", metavar="FILE", help="a server.properties file")
    parser.add_argument("--override", action="append", metavar="NAME=VALUE", help="one setting; may be repeated")
    parser.add_argument(
        "--data-dir",
        metavar="DIR",
        help="the data directory; created if missing. Default: log.dirs if set, else ~/.local/share/odradek",
    )
    parser.add_argument("--port", metavar="N", help="the port of the first listener; 0 takes a free one")
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
