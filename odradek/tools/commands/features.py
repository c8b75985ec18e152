"""`odradek features`: what kafka-features does with the levels of features."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from odradek.tools.commands.options import add_connection, add_json, with_admin
from odradek.tools.commands.output import print_rows

if TYPE_CHECKING:
    from odradek.client.admin import Admin
    from odradek.client.administration.cluster import UpgradeType


def configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)

    describing = actions.add_parser("describe", help="what the brokers support, and the finalised level")
    add_json(describing)
    add_connection(describing)
    describing.set_defaults(run=with_admin(describe))

    raising = actions.add_parser("upgrade", help="raise features to these levels")
    _add_changes(raising)
    raising.set_defaults(run=with_admin(upgrade))

    lowering = actions.add_parser("downgrade", help="lower features to these levels")
    lowering.add_argument("--unsafe", action="store_true", help="even if that loses metadata")
    _add_changes(lowering)
    lowering.set_defaults(run=with_admin(downgrade))


def _add_changes(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--feature",
        type=_level,
        action="append",
        required=True,
        metavar="NAME=LEVEL",
        help="may be repeated: all of them are changed, or none",
    )
    parser.add_argument("--dry-run", action="store_true", help="only say whether the cluster would do it")
    add_connection(parser)


def _level(text: str) -> tuple[str, int]:
    name, separator, level = text.partition("=")
    if not separator or not name.strip() or not level.strip().isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r}: it takes NAME=LEVEL, as in share.version=2")
    return name.strip(), int(level)


async def describe(admin: Admin, options: argparse.Namespace) -> None:
    rows = [
        {"feature": name, "lowest": each.lowest, "highest": each.highest, "level": each.level}
        for name, each in (await admin.describe_features()).items()
    ]
    columns = {"feature": "FEATURE", "lowest": "LOWEST", "highest": "HIGHEST", "level": "LEVEL"}
    print_rows(rows, columns, as_json=options.json, empty="The brokers tell of no features.")


async def upgrade(admin: Admin, options: argparse.Namespace) -> None:
    from odradek.client.administration.cluster import UpgradeType

    await _update(admin, options, UpgradeType.UPGRADE)


async def downgrade(admin: Admin, options: argparse.Namespace) -> None:
    from odradek.client.administration.cluster import UpgradeType

    await _update(admin, options, UpgradeType.UNSAFE_DOWNGRADE if options.unsafe else UpgradeType.SAFE_DOWNGRADE)


async def _update(admin: Admin, options: argparse.Namespace, kind: UpgradeType) -> None:
    levels = dict(options.feature)
    await admin.update_features(levels, kind, validate_only=options.dry_run)
    for name, level in levels.items():
        print(f"{name} {'can be set to' if options.dry_run else 'is at'} level {level}.")
