"""The meaning of the bytes of records: the records of internal topics, control records, messages, as plain JSON-like
values.

For everybody who shows them to people: `odradek inspect`, the page, Spark.
"""
