"""Decodes columns with the Avro schemas of a schema registry.

subject   the versions of a subject, as schemas for Spark
decoding  the expression that decodes a column
"""
