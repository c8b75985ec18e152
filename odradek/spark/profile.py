"""Measures a topic: what applications import of `odradek.spark.jobs.profile` (docs/using-spark.md)."""

from odradek.spark.jobs.profile import profile

__all__ = ["profile"]
