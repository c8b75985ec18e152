"""The errors that a dual write can raise. Any other exception that leaves a block was raised by the block itself."""

from odradek.dualwrite.recipe import Fate


class DualWriteError(Exception):
    pass


class IllegalUse(DualWriteError):
    """The call is not allowed in the current state. Nothing was done."""


class NotCommitted(DualWriteError):
    """The transaction was rolled back: neither its rows nor its messages will ever be visible. `__cause__` is the
    reason.

    If the broker could not be reached for the abort, `messages` is PENDING, and readers of the topics wait until
    `recover()` is called.
    """

    def __init__(self, messages: Fate) -> None:
        super().__init__(f"the transaction is rolled back; its messages are {messages.value}")
        self.messages = messages


class InDoubt(DualWriteError):
    """The transaction cannot be completed now. `__cause__` is the reason. Call `recover()`, in this process or in a
    later process.

    rows  COMMITTED: the messages will be committed too. UNKNOWN: the database will determine the outcome when it can be
          read. If the block sent nothing, only the rows are UNKNOWN, as with any database, and no recovery is needed.
    """

    def __init__(self, rows: Fate, messages: Fate) -> None:
        super().__init__(f"the rows are {rows.value}, the messages {messages.value}")
        self.rows = rows
        self.messages = messages


class Fenced(DualWriteError):
    """Another instance has taken over the transactional id. That instance commits or aborts the messages according to
    the state in the database.

    rows  COMMITTED: the other instance will commit the messages. ROLLED_BACK: the other instance will abort the
          messages. UNKNOWN: either may happen.
    """

    def __init__(self, rows: Fate) -> None:
        super().__init__(f"another instance has taken over the transactional id; the rows here are {rows.value}")
        self.rows = rows


class NotRecovered(DualWriteError):
    """`recover()` could not be completed, for the reason in `__cause__`. Open transactions remain in doubt; repeat the
    call."""

    def __init__(self, doing: str) -> None:
        super().__init__(f"recovery failed at this step: {doing}")
