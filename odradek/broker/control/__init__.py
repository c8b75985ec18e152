"""Lets tests control the broker and its clusters, if it is started by `odradek serve --control`.

clusters/   creates, restarts and deletes brokers: their directories, checkpoints, listeners and emulated releases
nodes/      the nodes of a cluster, and the partitions that each of them leads
faults/     rules that delay, hold, change, refuse or lose something at a point of a request or of the broker
odd/        responses that the protocol allows, but that Kafka rarely gives
recording/  the exchanges of clients: the most recent ones in memory, all of them in a file
presets/    calls that each bring a cluster into a certain state
http/       the calls below /control/v1
problems    refusals of calls: the field that is wrong, and the values that it allows
"""
