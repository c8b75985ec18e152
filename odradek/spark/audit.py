"""Compares an output with its input. docs/using-spark.md describes these functions of `odradek.spark.jobs.audit`."""

from odradek.spark.jobs.audit import Comparison, compare, exactly_once

__all__ = ["Comparison", "compare", "exactly_once"]
