"""Implements `odradek cluster`, which shows the brokers and their advertised addresses, and `odradek features`, which
works like kafka-features."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from odradek.tools.commands.options import CommandActions
from odradek.tools.commands.output import headings, print_object, print_rows

if TYPE_CHECKING:
    from odradek.client.admin import Admin
    from odradek.client.administration.cluster import UpgradeType


def configure(parser: argparse.ArgumentParser) -> None:
    actions = CommandActions(parser)
    with actions.add("describe", "show the brokers, the controller and the features", describe, json=True):
        pass
    with actions.add("cluster-id", "print the id of the cluster", cluster_id):
        pass


def configure_features(parser: argparse.ArgumentParser) -> None:
    actions = CommandActions(parser)
    with actions.add(
        "describe", "show the supported levels and the finalized level of each feature", describe_features, json=True
    ):
        pass
    with actions.add("upgrade", "raise features to these levels", upgrade) as raising:
        _add_changes(raising)
    with actions.add("downgrade", "lower features to these levels", downgrade) as lowering:
        lowering.add_argument("--unsafe", action="store_true", help="lower the level even if this loses metadata")
        _add_changes(lowering)


async def describe(admin: Admin, options: argparse.Namespace) -> None:
    found = await admin.describe_cluster()
    rows = [
        {"id": each.broker_id, "host": each.host, "port": each.port, "rack": each.rack}
        | {"controller": each.broker_id == found.controller_id}
        for each in found.brokers
    ]
    if options.json:
        print_object({"cluster_id": found.cluster_id, "brokers": rows, "features": dict(found.features)})
        return
    print(f"Cluster {found.cluster_id}")
    for row in rows:
        row["controller"] = "yes" if row["controller"] else None
    print_rows(rows, headings("id host port rack controller", id="BROKER"), as_json=False, empty="No brokers.")
    levels = [{"feature": name, "level": level} for name, level in sorted(found.features.items())]
    print_rows(levels, headings("feature level"), as_json=False, empty="No finalized features.")


async def cluster_id(admin: Admin, _options: argparse.Namespace) -> None:
    print((await admin.describe_cluster()).cluster_id)


def _add_changes(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--feature",
        type=_level,
        action="append",
        required=True,
        metavar="NAME=LEVEL",
        help="the new level of a feature; may be repeated, and then either all levels change or none",
    )
    parser.add_argument("--dry-run", action="store_true", help="only check whether the cluster would accept the change")


def _level(text: str) -> tuple[str, int]:
    name, separator, level = text.partition("=")
    if not separator or not name.strip() or not level.strip().isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=LEVEL, such as odradek.share.transactions=1")
    return name.strip(), int(level)


async def describe_features(admin: Admin, options: argparse.Namespace) -> None:
    rows = [
        {"feature": name, "lowest": each.lowest, "highest": each.highest, "level": each.level}
        for name, each in (await admin.describe_features()).items()
    ]
    print_rows(
        rows, headings("feature lowest highest level"), as_json=options.json, empty="The brokers report no features."
    )


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
