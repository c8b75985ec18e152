"""`odradek cluster`: the brokers with their advertised addresses, the controller, the features."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from odradek.tools.commands.options import add_connection, add_json, with_admin
from odradek.tools.commands.output import print_object, print_rows

if TYPE_CHECKING:
    from odradek.client.admin import Admin


def configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)

    describing = actions.add_parser("describe", help="brokers, controller, features")
    add_json(describing)
    add_connection(describing)
    describing.set_defaults(run=with_admin(describe))

    naming = actions.add_parser("cluster-id", help="the id of the cluster")
    add_connection(naming)
    naming.set_defaults(run=with_admin(cluster_id))


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
    columns = {"id": "BROKER", "host": "HOST", "port": "PORT", "rack": "RACK", "controller": "CONTROLLER"}
    print_rows(rows, columns, as_json=False, empty="No brokers.")
    levels = [{"feature": name, "level": level} for name, level in sorted(found.features.items())]
    print_rows(levels, {"feature": "FEATURE", "level": "LEVEL"}, as_json=False, empty="No finalized features.")


async def cluster_id(admin: Admin, _options: argparse.Namespace) -> None:
    print((await admin.describe_cluster()).cluster_id)
