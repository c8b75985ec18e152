"""The files of a data directory, in Kafka's own formats: their names, and their bytes as values.

Storage writes and reads them, the commands show and check them, and Spark reads them without a broker. Each format is
described here and nowhere else.

    names              names of files and directories
    structures         the fixed structures: entries of indexes and of producer snapshots
    indexes            the offset index, the time index and the transaction index of a segment
    producer_snapshot  the producers of a partition before an offset
    checkpoints        offsets by partition, leader epochs, the ids of a topic and of a data directory
    manifest           facts about the files at a clean stop
    batches            whether a batch begins at a byte of a log, and if not, why
    offline            reads logs from their directories without a broker

Everything except `offline` is pure: bytes in, values out.
"""
