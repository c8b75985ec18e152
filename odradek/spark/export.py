"""Writes topics as Parquet: the public names of `odradek.spark.jobs.export` (docs/using-spark.md)."""

from odradek.spark.jobs.export import ExportOptions, export, export_source

__all__ = ["ExportOptions", "export", "export_source"]
