"""`odradek inspect`: the contents of the files of a data directory, record by record.

    command      kinds of files by their names; entries for people, and as JSON
    small_files  indexes and producer snapshots, declared with construct; checkpoints and properties
    logs         record batches, and the records of internal topics in words
    frames       requests and responses as they travel, and recordings of them

Readers never fail on content: what they cannot interpret becomes an entry of its own, with its position.
"""
