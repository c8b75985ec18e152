"""The assignors by name. These names appear in `group.consumer.assignors` and in members' requests."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from odradek.broker.groups.consumer.assignors.group_view import GroupView, TargetAssignment
from odradek.broker.groups.consumer.assignors.range import assign_ranges
from odradek.broker.groups.consumer.assignors.uniform import assign_uniformly

ASSIGNORS: Mapping[str, Callable[[GroupView], TargetAssignment]] = {
    "uniform": assign_uniformly,
    "range": assign_ranges,
}
