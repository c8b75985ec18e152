"""Reasons why a broker does not start."""


class CannotStart(Exception):
    """The reason why the broker cannot start, worded for the operator."""
