"""The `odradek` commands, with a module for each command. `tree.py` lists them. They work with any Kafka broker."""
