"""Compares an output with its input: the public names of `odradek.spark.jobs.audit` (docs/using-spark.md)."""

from odradek.spark.jobs.audit import Comparison, compare, exactly_once

__all__ = ["Comparison", "compare", "exactly_once"]
