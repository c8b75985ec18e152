"""The error that prevents a broker from starting."""


class CannotStart(Exception):
    """The broker cannot start. The message gives the reason, and is written for the operator."""
