"""Public names of `odradek.spark.avro_columns`, which decodes Avro columns (docs/using-spark.md)."""

from odradek.spark.avro_columns.decoding import decode_avro, schema_id

__all__ = ["decode_avro", "schema_id"]
