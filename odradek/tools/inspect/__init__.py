"""`odradek inspect`: prints the contents of files in a data directory, record by record.

command      recognises the kind of a file by its name; prints entries as text and as JSON
small_files  indexes and producer snapshots, declared with construct; checkpoints and properties
logs         record batches, and decoded records of internal topics
frames       requests and responses in their binary form, and recordings

Readers never fail because of a file's content. Bytes that they cannot interpret are reported as a separate entry, with
their position.
"""
