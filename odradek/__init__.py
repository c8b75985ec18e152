"""Odradek: a Kafka broker in one Python process. `python -m odradek serve` starts it."""

import os.path

import protocol

__version__ = "0.1.0"

# `protocol` is a top-level name of ours that another distribution may have taken as well.
if os.path.dirname(os.path.dirname(os.path.abspath(protocol.__file__ or ""))) != os.path.dirname(
    os.path.dirname(os.path.abspath(__file__))
):
    raise ImportError(
        f"the package 'protocol' at {protocol.__file__} is not the one beside {os.path.dirname(__file__)}:"
        " another distribution in this environment has the same name. Install Odradek into an environment of its own."
    )
