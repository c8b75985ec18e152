"""Exactly-once output of Spark's queries, by the rules of docs/spec/spark.md."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from odradek.spark.listener import install

__all__ = ["install"]


def __getattr__(name: str) -> Any:
    """Imports `install` when it is used: it needs pyspark, which some commands of `odradek spark` do without."""
    if name == "install":
        from odradek.spark.listener import install

        return install
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
