"""Tools around the broker: the commands, and the code that reads, checks and writes files for them."""
