"""Decodes the bytes of records into plain JSON-like values: records of internal topics, control records and messages.

This package is used by everything that displays records: `odradek inspect`, the page and Spark.
"""
