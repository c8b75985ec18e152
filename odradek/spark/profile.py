"""Measures a topic. docs/using-spark.md describes this function of `odradek.spark.jobs.profile`."""

from odradek.spark.jobs.profile import profile

__all__ = ["profile"]
