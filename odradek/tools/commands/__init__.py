"""The commands of `odradek`, one module each. `tree.py` lists them. They work with any Kafka broker."""
