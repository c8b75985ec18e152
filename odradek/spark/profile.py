"""Public names of `odradek.spark.jobs.profile`, which measures a topic (docs/using-spark.md)."""

from odradek.spark.jobs.profile import profile

__all__ = ["profile"]
