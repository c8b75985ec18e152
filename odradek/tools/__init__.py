"""The commands of `odradek`, and the code with which they read, check and write files."""
