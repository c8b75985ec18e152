"""`odradek inspect`: what stands in the files of a data directory, said record by record.

    files        which kind of file it is, by its name
    fixed_files  indexes and producer snapshots, declared with construct
    logs         record batches, and the records of internal topics in words
    text_files   checkpoints and properties
    frames       requests and responses as they travel
    rendering    for people, and as JSON

Readers never stop a program: what they cannot make sense of is an entry of its own, with its position.
"""
