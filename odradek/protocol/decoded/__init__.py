"""Decodes the records of internal topics, control records and messages into plain JSON-like values.

Everything that displays records, such as `odradek inspect`, the page and Spark, uses this package.
"""
