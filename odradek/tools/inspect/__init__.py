"""`odradek inspect`: prints the contents of files in a data directory, record by record.

command      recognises kinds of files by their names; prints entries as text and as JSON
small_files  indexes and producer snapshots, declared with construct; checkpoints and properties
logs         record batches, and the records of internal topics in words
frames       requests and responses as they are sent, and recordings of them

Readers never fail because of a file's content: what they cannot interpret becomes an entry of its own, with its
position.
"""
