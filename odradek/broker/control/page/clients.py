"""Connections, by the software that made them; and the warnings that the log had."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from odradek.broker.control.page.served import SHOWN

if TYPE_CHECKING:
    from odradek.broker.control.page.json_value import View
    from odradek.broker.control.page.served import Query, Served


def connections(served: Served, query: Query) -> View:
    """`find`: part of an address or of a client's name."""
    part = query.get("find", "")
    infos = [info for server in served.traffic.servers for info in server.connections()]
    software = Counter(f"{info.client_software_name} {info.client_software_version}" for info in infos)
    found = [info for info in infos if part in f"{info.client_host}:{info.client_port} {info.client_software_name}"]
    return {
        "total": len(found),
        "software": dict(software.most_common()),
        "connections": [
            {
                "id": info.connection_id,
                "from": f"{info.client_host}:{info.client_port}",
                "listener": info.listener,
                "principal": info.principal,
                "software": info.client_software_name,
                "version": info.client_software_version,
                "told": None if info.told is None else f"{info.told[0]}:{info.told[1]}",
            }
            for info in found[:SHOWN]
        ],
    }


def warnings(served: Served, query: Query) -> View:
    return {
        "warnings": [
            {"at_ms": int(each.created * 1000), "level": each.levelname, "logger": each.name, "text": each.getMessage()}
            for each in reversed(served.warnings)
        ]
    }
