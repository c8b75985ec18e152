"""Compares two data directories. docs/using-spark.md describes these names of `odradek.spark.jobs.diff`."""

from odradek.spark.jobs.diff import Diff, diff

__all__ = ["Diff", "diff"]
