"""Spark looks for `DefaultSource` in packages of such a name: `format("odradek")` needs no registration."""

from odradek.spark.data_source import OdradekSource as DefaultSource

__all__ = ["DefaultSource"]
