"""Why a broker does not start."""


class CannotStart(Exception):
    """What keeps the broker from serving, in words for the person who started it."""
