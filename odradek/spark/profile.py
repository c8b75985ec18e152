"""Measures a topic: the public names of `odradek.spark.jobs.profile` (docs/using-spark.md)."""

from odradek.spark.jobs.profile import profile

__all__ = ["profile"]
