"""The parts of a producer: batches, their delivery to the partition leaders, and transaction states."""
