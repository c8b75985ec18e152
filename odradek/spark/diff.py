"""Public names of `odradek.spark.jobs.diff`, which compares two data directories (docs/using-spark.md)."""

from odradek.spark.jobs.diff import Diff, diff

__all__ = ["Diff", "diff"]
