"""Decodes the bytes of records into plain JSON-like values: records of internal topics, control records, messages.

Used by everything that displays them: `odradek inspect`, the page, Spark.
"""
