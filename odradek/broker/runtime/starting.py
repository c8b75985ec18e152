"""Reasons why a broker does not start."""


class CannotStart(Exception):
    """A reason why the broker cannot serve, in words for the person who started it."""
