"""State of a running broker as plain values, for the page, the lists of control and its conditions.

    groups        a group of any type with its members, and its committed offsets
    partitions    the leader and the offsets of a partition
    shares        the records of a share partition with their states: in a leader's memory, or as they are stored
    transactions  a transaction as its coordinator describes it

The functions read the broker's memory without sending requests, and change nothing. Their callers choose the field
names in JSON.
"""
