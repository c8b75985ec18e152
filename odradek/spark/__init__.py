"""Reads and writes topics with Spark and writes each row exactly once. docs/using-spark.md is the manual, and
docs/spec/spark.md contains the rules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from odradek.spark.listener import install

__all__ = ["install"]


def __getattr__(name: str) -> Any:
    """Imports `install` on first use, because it needs pyspark, which some `odradek spark` commands do not."""
    if name == "install":
        from odradek.spark.listener import install

        return install
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
