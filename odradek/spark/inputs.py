"""Names what a job reads: what applications import of `odradek.spark.jobs.inputs` (docs/using-spark.md)."""

from odradek.spark.jobs.inputs import Input, InputError, input_of

__all__ = ["Input", "InputError", "input_of"]
