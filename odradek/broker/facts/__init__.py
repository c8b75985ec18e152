"""State of a running broker as values, which the page, the lists of control and its conditions show.

    groups        a group of any type with its members, and its committed offsets
    partitions    the leader and the offsets of a partition
    shares        the records of a share partition with their states: in a leader's memory, or as they are stored
    transactions  a transaction as its coordinator describes it

Functions read what the broker has in memory, without requests to it, and change nothing. Whoever shows the values
chooses the names of fields in JSON.
"""
