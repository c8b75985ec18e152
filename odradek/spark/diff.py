"""Compares two data directories: what applications import of `odradek.spark.jobs.diff` (docs/using-spark.md)."""

from odradek.spark.jobs.diff import Diff, diff

__all__ = ["Diff", "diff"]
