"""Provides `DefaultSource` where Spark looks for it, so that `format("odradek")` needs no registration."""

from odradek.spark.data_source import OdradekSource as DefaultSource

__all__ = ["DefaultSource"]
