"""Implements the methods of `Admin`, with one module for each kind of resource.

Each module is imported when it is first used as an attribute of this package: `administration.groups.list_groups`.
"""

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from odradek.client.administration import cluster, configs, groups, records, streams_groups, topics, transactions

__all__ = ["cluster", "configs", "groups", "records", "streams_groups", "topics", "transactions"]


def __getattr__(name: str) -> ModuleType:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module(f"{__name__}.{name}")
