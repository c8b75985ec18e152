"""The scenarios: a state or a fault, what the driver is told to do, and the rule that its answers decide.

A scenario returns None where the rule is kept, or why it is broken; an error that the application sees breaks it too.
"""

from __future__ import annotations

from odradek.testing.suite.scenarios import groups, nodes, producing, reading, shares

SCENARIOS = (*nodes.SCENARIOS, *producing.SCENARIOS, *reading.SCENARIOS, *groups.SCENARIOS, *shares.SCENARIOS)
