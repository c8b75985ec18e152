"""The table of rules. Each family has its own module. Reports show the families in the order given here."""

from __future__ import annotations

from odradek.testing.judge.rule import ProtocolRule
from odradek.testing.judge.rules import (
    assignments,
    connections,
    consumer_groups,
    fetch,
    groups,
    idempotence,
    metadata,
    produce,
    shares,
    streams_members,
    streams_tasks,
    transactions,
    transactions_v2,
    versions,
)

FAMILIES = (
    versions.FAMILY,
    connections.FAMILY,
    metadata.FAMILY,
    produce.FAMILY,
    idempotence.FAMILY,
    transactions.FAMILY,
    transactions_v2.FAMILY,
    fetch.FAMILY,
    groups.FAMILY,
    assignments.FAMILY,
    consumer_groups.FAMILY,
    shares.FAMILY,
    streams_members.FAMILY,
    streams_tasks.FAMILY,
)
RULES: dict[str, ProtocolRule] = {rule.id: rule for family in FAMILIES for rule in family.rules}
