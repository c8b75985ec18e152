"""Public names of `odradek.spark.jobs.audit`, which compares an output with its input (docs/using-spark.md)."""

from odradek.spark.jobs.audit import Comparison, compare, exactly_once

__all__ = ["Comparison", "compare", "exactly_once"]
