"""Describes the state of a running broker as plain values, for the page and for the lists and wait conditions of the
control interface.

    groups        a group of any type with its members, and its committed offsets
    partitions    the leader and the offsets of a partition
    shares        the records of a share partition with their states, from a leader's memory or from the share
                  coordinator's stored state
    transactions  a transaction as its coordinator describes it

The functions read the broker's memory without sending requests, and change nothing. Their callers choose the field
names in JSON.
"""
