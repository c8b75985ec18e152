"""Implements `odradek certs`, which creates a CA for development, and certificates for the broker and for clients."""

from __future__ import annotations

import argparse
from pathlib import Path

from odradek.tools.commands.errors import DONE
from odradek.tools.commands.options import add_json, add_list
from odradek.tools.commands.output import print_object

HOSTS = ("localhost", "127.0.0.1", "::1")
# Java's default password. It does not have to be secret, because anyone who can read the stores can also read the keys
# next to them.
DEFAULT_PASSWORD = "changeit"
DEFAULT_DAYS = 365


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "directory", nargs="?", default="certs", metavar="DIR", help="the directory to write to; default: %(default)s"
    )
    add_list(
        parser,
        "--host",
        metavar="NAME",
        help=f"an additional host name or address of the broker, besides {', '.join(HOSTS)}",
    )
    add_list(parser, "--client", metavar="NAME", help="make a certificate for a client of this name")
    parser.add_argument(
        "--password",
        default=DEFAULT_PASSWORD,
        metavar="TEXT",
        help="the password of the PKCS12 stores; default: %(default)s",
    )
    parser.add_argument(
        "--days",
        type=int,
        default=DEFAULT_DAYS,
        metavar="N",
        help="how many days the certificates are valid; default: %(default)d",
    )
    add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from datetime import UTC, datetime

    from odradek.tools.certs import CA, SERVER, client_file, fill

    if options.days < 1:
        raise ValueError("--days must be at least 1")
    bad = [name for name in options.client if not name or name.startswith(".") or "/" in name]
    if bad:
        raise ValueError(
            f"--client {bad[0]}: the name becomes part of a file name, so it must not contain this character"
        )
    directory = Path(options.directory)
    hosts = tuple(dict.fromkeys((*HOSTS, *options.host)))
    clients = tuple(dict.fromkeys(options.client))
    made = fill(
        directory, hosts=hosts, clients=clients, password=options.password, now=datetime.now(UTC), days=options.days
    )
    if options.json:
        print_object({"directory": str(directory.absolute()), "new": list(made.new), "kept": list(made.kept)})
        return DONE
    for what, names in (("made", made.new), ("kept", made.kept)):
        if names:
            print(f"{what} in {directory}: {', '.join(names)}")
    here = directory.absolute()
    print(
        "\n"
        "for development only: anybody who can read this directory can pose as the broker and as any client.\n"
        "\n"
        "the broker:\n"
        "  listeners=SSL://localhost:9093\n"
        "  ssl.keystore.type=PEM\n"
        f"  ssl.keystore.location={here / f'{SERVER}.pem'}\n"
        "  ssl.truststore.type=PEM\n"
        f"  ssl.truststore.location={here / CA}\n"
        "  ssl.client.auth=required\n"
        "librdkafka:\n"
        "  security.protocol=ssl\n"
        f"  ssl.ca.location={here / CA}"
    )
    if clients:
        pem = here / f"{client_file(clients[0])}.pem"
        print(f"  ssl.certificate.location={pem}\n  ssl.key.location={pem}")
    return DONE
