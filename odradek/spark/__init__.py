"""Exactly-once output of Spark's queries, by the rules of docs/spec/spark.md."""
