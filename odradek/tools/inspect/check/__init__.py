"""`odradek inspect check`: checks whether the logs of a data directory are sound, by their batch headers and CRCs.

findings   defects, with advice
partition  the rules that the batches of one partition must satisfy; pure
beside     the files beside a log: indexes, snapshots
run        reads the directories; compares partitions with each other and with the coordinators' log
report     formats the result as text and as JSON
"""
