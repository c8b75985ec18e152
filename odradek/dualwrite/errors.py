"""The errors of a dual write. Any other exception that leaves a block comes from the block itself."""

from odradek.dualwrite.recipe import Fate


class DualWriteError(Exception):
    pass


class IllegalUse(DualWriteError):
    """A call that has no place here; nothing was done because of it."""


class NotCommitted(DualWriteError):
    """Neither the rows nor the messages are there, nor ever will be; `__cause__` is what failed.

    If the broker could not be told, readers of the topics wait until `recover()`; `messages` is PENDING then.
    """

    def __init__(self, messages: Fate) -> None:
        super().__init__(f"the transaction is rolled back; its messages are {messages.value}")
        self.messages = messages


class InDoubt(DualWriteError):
    """The transaction cannot be finished now; `__cause__` says why. Call `recover()`, now or in a later process.

    rows  COMMITTED: the messages will be, too. UNKNOWN: what the database holds will decide, once it can be asked. Of
          a block that sent nothing the rows alone are UNKNOWN, as with any database, and there is nothing to recover
    """

    def __init__(self, rows: Fate, messages: Fate) -> None:
        super().__init__(f"the rows are {rows.value}, the messages {messages.value}")
        self.rows = rows
        self.messages = messages


class Fenced(DualWriteError):
    """Another instance has taken over the transactional id, and decides by what the database holds.

    rows  COMMITTED: it will commit the messages. ROLLED_BACK: it will abort them. UNKNOWN: the one or the other.
    """

    def __init__(self, rows: Fate) -> None:
        super().__init__(f"another instance has taken over the transactional id; the rows here are {rows.value}")
        self.rows = rows


class NotRecovered(DualWriteError):
    """`recover()` could not be finished; `__cause__` says why. What was in doubt still is; call it again."""

    def __init__(self, doing: str) -> None:
        super().__init__(f"recovery came no further than this step: {doing}")
