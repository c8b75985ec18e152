"""Compares two data directories: the public names of `odradek.spark.jobs.diff` (docs/using-spark.md)."""

from odradek.spark.jobs.diff import Diff, diff

__all__ = ["Diff", "diff"]
