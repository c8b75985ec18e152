"""`odradek inspect check`: whether the logs of a data directory are sound, by their batch headers and CRCs.

findings   what can be wrong, and what to do about it
partition  the rules that the batches of one partition keep; pure
beside     the files beside a log: indexes, snapshots
run        reads the directories; what several partitions have to agree about
report     for people, and as JSON
"""
