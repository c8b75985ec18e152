"""The commands of `odradek`, and the code that reads, checks and writes files for them."""
