"""`odradek inspect`: the contents of the files of a data directory, record by record.

    files        which kind of file it is, by its name
    fixed_files  indexes and producer snapshots, declared with construct
    logs         record batches, and the records of internal topics in words
    text_files   checkpoints and properties
    frames       requests and responses as they travel
    rendering    for people, and as JSON

Readers never fail on content: what they cannot interpret becomes an entry of its own, with its position.
"""
