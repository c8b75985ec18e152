"""The commands of `odradek`, with one module for each; `tree.py` lists them. They work with any Kafka broker."""
