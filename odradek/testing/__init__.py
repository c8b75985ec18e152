"""Runs brokers for testing Kafka clients, with clusters that start in milliseconds, faults, holds, and a clock that the
test controls.

This package is the asyncio interface, and `odradek.testing.sync` is the blocking one. docs/testing.md shows examples of
both. The classes are imported on first use, so that the blocking interface does not load asyncio.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from odradek.testing.asynchronous import Clock, Cluster, Odradek
    from odradek.testing.sync import Refused, Unmet, Unused

__all__ = ["Clock", "Cluster", "Odradek", "Refused", "Unmet", "Unused"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = "sync" if name in ("Refused", "Unmet", "Unused") else "asynchronous"
    return getattr(import_module(f"{__name__}.{module}"), name)
