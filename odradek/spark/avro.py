"""Decodes Avro columns. docs/using-spark.md describes these functions of `odradek.spark.avro_columns`."""

from odradek.spark.avro_columns.decoding import decode_avro, schema_id

__all__ = ["decode_avro", "schema_id"]
