"""Odradek: a Kafka broker in one Python process. `python -m odradek serve` starts it."""

__version__ = "0.1.0"
