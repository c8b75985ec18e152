"""The error that is raised if a broker cannot start."""


class CannotStart(Exception):
    """Raised if the broker cannot start. The message gives the operator the reason."""
