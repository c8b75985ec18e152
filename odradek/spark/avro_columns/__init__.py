"""Decodes columns with the Avro schemas of a schema registry.

subject   a subject's versions as schemas for Spark
decoding  builds the expression that decodes a column
"""
