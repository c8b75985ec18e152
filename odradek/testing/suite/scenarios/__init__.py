"""The scenarios. Each prepares a state or a fault, gives commands to the driver, and decides a rule by the replies.

A scenario returns None if the rule is kept, or else a text that explains how it is broken. An error that the
application sees also breaks the rule.
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
