"""Tools around the broker: the commands, and what they read, check and write."""
