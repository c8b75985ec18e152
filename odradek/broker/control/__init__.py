"""The broker under the control of a test, which `odradek serve --control` switches on.

clusters/   brokers that come and go: their directories, checkpoints, listeners, and the release that each emulates
nodes/      the nodes of a cluster, each with the partitions that it leads
faults/     rules: at which point of a request or of the broker something is delayed, held, changed, refused or lost
odd/        answers that are lawful, and that Kafka seldom gives
recording/  the exchanges of clients: the last ones in memory, all of them in a file
presets/    states of a cluster that are made by one call
http/       the calls below /control/v1
problems    refusals: which field of a call is wrong, and what it may be
"""
