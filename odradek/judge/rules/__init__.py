"""The table of rules: one file for each family, in the order in which reports show them."""

from __future__ import annotations

from odradek.judge.rule import Rule
from odradek.judge.rules import (
    connections,
    consumer_groups,
    groups,
    idempotence,
    produce,
    transactions,
    transactions_v2,
    versions,
)

FAMILIES = (
    versions.FAMILY,
    connections.FAMILY,
    produce.FAMILY,
    idempotence.FAMILY,
    transactions.FAMILY,
    transactions_v2.FAMILY,
    groups.FAMILY,
    consumer_groups.FAMILY,
)
RULES: dict[str, Rule] = {rule.id: rule for family in FAMILIES for rule in family.rules}
