"""Describes the input of a job. docs/using-spark.md describes these names of `odradek.spark.jobs.inputs`."""

from odradek.spark.jobs.inputs import Input, InputError, input_of

__all__ = ["Input", "InputError", "input_of"]
