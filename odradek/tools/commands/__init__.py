"""The commands of `odradek`, with a module for each command. `tree.py` lists them. They work with any Kafka broker."""
