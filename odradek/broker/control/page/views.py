"""Which path shows which view. The same facts are there as JSON: `GET /api/<name>`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from odradek.broker.control.page.clients import connections, warnings
from odradek.broker.control.page.groups import group, groups
from odradek.broker.control.page.overview import overview
from odradek.broker.control.page.partition import partition
from odradek.broker.control.page.records import records
from odradek.broker.control.page.shares import shares
from odradek.broker.control.page.topics import topic, topics
from odradek.broker.control.page.transactions import transaction, transactions

if TYPE_CHECKING:
    from odradek.broker.control.page.served import Show

VIEWS: Mapping[str, Show] = {
    "overview": overview,
    "topics": topics,
    "topic": topic,
    "partition": partition,
    "records": records,
    "groups": groups,
    "group": group,
    "shares": shares,
    "transactions": transactions,
    "transaction": transaction,
    "connections": connections,
    "warnings": warnings,
}
