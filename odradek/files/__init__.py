"""Converts between the files of a data directory, which have Kafka's own formats, and Python values.

The storage package writes and reads these files, the commands show and check them, and Spark reads them without a
broker. No other package implements these formats.

    names              names of files and directories
    structures         fixed-size structures: entries of indexes and of producer snapshots
    indexes            the offset index, the time index and the transaction index of a segment
    producer_snapshot  the state of a partition's producers at an offset
    checkpoints        offsets by partition, leader epochs, the ids of a topic and of a data directory
    manifest           facts about the files at a clean shutdown
    batches            checks whether a batch begins at a byte position of a log
    offline            reads logs from their directories without a broker

Only `offline` does I/O. All other modules convert bytes to values, and values to bytes.
"""
