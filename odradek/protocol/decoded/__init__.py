"""Decodes the records of internal topics, control records and messages into plain JSON-like values.

Everything that displays records uses this package, such as `odradek inspect`, the page and Spark.
"""
