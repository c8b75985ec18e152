"""The parts of a producer: batches, their delivery to the leaders, and the states of a transaction."""
