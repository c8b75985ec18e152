"""The `odradek` commands, and the code that reads, checks and writes files for them."""
