"""Writes topics as Parquet. docs/using-spark.md describes these names of `odradek.spark.jobs.export`."""

from odradek.spark.jobs.export import ExportOptions, export, export_source

__all__ = ["ExportOptions", "export", "export_source"]
