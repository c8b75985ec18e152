"""The error that is raised if a broker cannot start."""


class CannotStart(Exception):
    """The broker cannot start. The message gives the reason, and is written for the operator."""
