"""Implements `odradek inspect`, which prints the contents of files in a data directory, record by record.

command      recognises a file's kind by its name, and prints entries as text or JSON
small_files  reads indexes, producer snapshots, checkpoints and properties
logs         reads record batches and decodes the records of internal topics
frames       reads recordings, and requests and responses in binary form
pcap         converts a recording to a capture file

Readers never fail because of a file's content. Instead, they yield a separate entry with the position of any bytes that
they cannot interpret.
"""
