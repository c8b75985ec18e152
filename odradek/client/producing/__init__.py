"""The parts of a producer: batches, how they reach the leaders, and the states of a transaction."""
