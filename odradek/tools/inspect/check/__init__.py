"""`odradek inspect check`: whether the logs of a data directory are sound, by their batch headers and CRCs.

findings   defects, and what to do about them
partition  the rules that the batches of one partition keep; pure
beside     the files beside a log: indexes, snapshots
run        reads the directories; agreement of several partitions, and of the coordinators' log
report     for people, and as JSON
"""
