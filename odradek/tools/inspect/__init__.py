"""Implements `odradek inspect`, which prints the contents of files in a data directory, record by record.

command      recognises the kind of a file by its name, and prints entries as text and as JSON
small_files  reads indexes, producer snapshots, checkpoints and properties
logs         reads record batches, and decodes records of internal topics
frames       reads requests and responses in their binary form, and recordings
pcap         converts a recording to a capture file

Readers never fail because of a file's content. Instead, they yield a separate entry for bytes that they cannot
interpret, with the position of these bytes.
"""
