"""The commands that people type, one file for each; `tree.py` lists them. They work with any Kafka broker."""
