"""The suite's scenarios. Each scenario prepares a state or a fault, sends commands to the driver, and decides a rule
from the replies.

A scenario returns None if the client keeps the rule, or a text that explains how the client breaks it. An error that
reaches the application also breaks the rule.
"""

from __future__ import annotations

from odradek.testing.suite.scenarios import groups, nodes, producing, reading, shares, streams

SCENARIOS = (
    *nodes.SCENARIOS,
    *producing.SCENARIOS,
    *reading.SCENARIOS,
    *groups.SCENARIOS,
    *shares.SCENARIOS,
    *streams.SCENARIOS,
)
