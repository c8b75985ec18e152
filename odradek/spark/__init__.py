"""Reads and writes topics with Spark. Output is written exactly once (rules: docs/spec/spark.md)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from odradek.spark.listener import install

__all__ = ["install"]


def __getattr__(name: str) -> Any:
    """Imports `install` on first use. It needs pyspark, and some commands of `odradek spark` work without pyspark."""
    if name == "install":
        from odradek.spark.listener import install

        return install
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
