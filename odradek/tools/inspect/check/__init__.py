"""Implements `odradek inspect check`, which uses batch headers and CRCs to check whether the logs of a data directory
are sound.

findings   the kinds of defects, with advice on each
partition  the rules that the batches of one partition must satisfy; does no I/O
beside     checks the files that accompany a log: indexes and snapshots
run        reads the directories, and compares partitions with one another and with the transaction coordinators' log
report     formats the result as text or JSON
"""
