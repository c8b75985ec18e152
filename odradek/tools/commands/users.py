"""Implements `odradek users`, which manages users' SCRAM credentials, like kafka-configs."""

from __future__ import annotations

import argparse
import sys
from getpass import getpass
from pathlib import Path
from typing import TYPE_CHECKING

from odradek.tools.commands.options import CommandActions
from odradek.tools.commands.output import headings, print_rows

if TYPE_CHECKING:
    from odradek.client.admin import Admin
    from odradek.protocol.scram import ScramMechanism

DEFAULT_MECHANISM = "SCRAM-SHA-512"
MECHANISMS = ("SCRAM-SHA-256", DEFAULT_MECHANISM)


def configure(parser: argparse.ArgumentParser) -> None:
    actions = CommandActions(parser)
    with actions.add("list", "list users that have a password, with their mechanisms", list_, json=True):
        pass
    with actions.add("set-password", "add a user, or change the password of a user", set_) as setting:
        _add_user(setting)
        setting.add_argument(
            "--iterations",
            type=int,
            default=4096,
            metavar="N",
            help="the iterations of the hash, from 4096 to 16384; default: %(default)s",
        )
        setting.add_argument(
            "--password-file",
            metavar="FILE",
            help="a file whose first line is the password; - reads standard input. Default: prompt for it",
        )
    with actions.add(
        "delete-password",
        "delete a password: the user can no longer log in, but existing connections stay open",
        delete,
    ) as deleting:
        _add_user(deleting)


def _add_user(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("user", metavar="USER", help="the name of the user, without the prefix User:")
    parser.add_argument(
        "--mechanism", choices=MECHANISMS, default=DEFAULT_MECHANISM, help="the SCRAM mechanism; default: %(default)s"
    )


def _mechanism(options: argparse.Namespace) -> ScramMechanism:
    from odradek.protocol.scram import SCRAM_MECHANISMS

    return SCRAM_MECHANISMS[options.mechanism]


def _password(options: argparse.Namespace) -> str:
    """Reads the password from a file, or prompts for it. Raises ValueError if it is empty."""
    if options.password_file is None:
        password = getpass(f"Password of {options.user}: ")
    elif options.password_file == "-":
        password = sys.stdin.readline().rstrip("\n")
    else:
        password = Path(options.password_file).read_text(encoding="utf-8").partition("\n")[0]
    if not password:
        raise ValueError("the password is empty")
    return password


async def list_(admin: Admin, options: argparse.Namespace) -> None:
    from odradek.client.administration.users import describe_users

    rows = [
        {"user": user, "mechanism": mechanism.sasl_name, "iterations": iterations}
        for user, credentials in sorted((await describe_users(admin.requests)).items())
        for mechanism, iterations in credentials.items()
    ]
    columns = headings("user mechanism iterations")
    print_rows(rows, columns, as_json=options.json, empty="No user has a SCRAM password.")


async def set_(admin: Admin, options: argparse.Namespace) -> None:
    from odradek.client.administration.users import set_password

    await set_password(
        admin.requests, options.user, _password(options), _mechanism(options), iterations=options.iterations
    )
    print(f"{options.user} can log in with {options.mechanism}.")


async def delete(admin: Admin, options: argparse.Namespace) -> None:
    from odradek.client.administration.users import delete_password

    await delete_password(admin.requests, options.user, _mechanism(options))
    print(f"{options.user} no longer has a password for {options.mechanism}.")
