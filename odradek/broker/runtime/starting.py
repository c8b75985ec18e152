"""Defines the error that is raised when a broker cannot start."""


class CannotStart(Exception):
    """Raised if the broker cannot start. The message gives the operator the reason."""
