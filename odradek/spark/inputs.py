"""Names the input of a job: the public names of `odradek.spark.jobs.inputs` (docs/using-spark.md)."""

from odradek.spark.jobs.inputs import Input, InputError, input_of

__all__ = ["Input", "InputError", "input_of"]
