"""Public names of `odradek.spark.jobs.export`, which writes topics as Parquet (docs/using-spark.md)."""

from odradek.spark.jobs.export import ExportOptions, export, export_source

__all__ = ["ExportOptions", "export", "export_source"]
