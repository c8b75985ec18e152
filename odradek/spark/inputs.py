"""Public names of `odradek.spark.jobs.inputs`, which describes a job's inputs (docs/using-spark.md)."""

from odradek.spark.jobs.inputs import Input, InputError, input_of

__all__ = ["Input", "InputError", "input_of"]
