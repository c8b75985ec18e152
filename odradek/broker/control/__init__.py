"""Lets tests control the broker and its clusters if the broker is started by `odradek serve --control`.

clusters/   creates, restarts and deletes brokers, with their directories, checkpoints, listeners and emulated releases
nodes/      the nodes of a cluster, and the partitions that each of them leads
faults/     rules that delay, hold, change, refuse or lose requests, responses and steps of the broker
odd/        responses that the protocol allows but Kafka rarely sends
recording/  records clients' exchanges, either the most recent ones in memory or all of them in a file
presets/    calls that put a cluster into a rare state
http/       the calls below /control/v1
problems    errors returned by calls, with the name of the invalid field and the values that the field allows
"""
