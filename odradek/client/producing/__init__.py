"""What a producer consists of: batches, their way to the leaders, and the states of a transaction."""
