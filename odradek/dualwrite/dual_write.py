"""`DualWrite`, which performs the steps of the recipe and reports the outcome to the application."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Generic, TypeAlias

from odradek.dualwrite import recipe
from odradek.dualwrite.database import C
from odradek.dualwrite.errors import DualWriteError, Fenced, IllegalUse, InDoubt, NotCommitted, NotRecovered
from odradek.dualwrite.kafka import participant_factory
from odradek.dualwrite.participant import Participant
from odradek.dualwrite.performer import Performer
from odradek.dualwrite.recipe import End, Fate, Phase, Result, Step
from odradek.dualwrite.transaction import Transaction

# Called with None before each step, and with the step's result after it.
Observer: TypeAlias = Callable[[Step, Result | None], None]

DEFAULT_BOOTSTRAP_SERVERS = "localhost:9092"
DEFAULT_TIMEOUT_MS = 30_000


def observe_nothing(step: Step, result: Result | None) -> None:
    pass


@dataclass(frozen=True, slots=True)
class Recovery:
    """The result of `recover()`: the state stored in the database, and the state of the open Kafka transaction. A
    missing state is an empty string."""

    stored_state: str
    open_state: str

    @property
    def messages(self) -> Fate | None:
        """The open transaction's outcome, or None if no transaction was open."""
        if not self.open_state:
            return None
        return Fate.COMMITTED if self.open_state == self.stored_state else Fate.ROLLED_BACK


class DualWrite(Generic[C]):
    """Writes rows and messages that are committed together, or not at all.

    connect      returns a new connection to the same database on each call: `sqlite3` to a file, or psycopg 3. Recovery
                 opens new connections, as does a commit that got no response from the database.
    timeout_ms   how long a step waits for the broker, and how long recovery waits in the database for an earlier writer
                 that is about to commit. The settings of the connection determine all other waits for the database.
    participant  creates a producer with the transactional id; called on each recovery. Replaces `bootstrap_servers`.
    observe      see `Observer`

    Use an instance in one thread, for one transaction at a time. As a context manager, an instance recovers on entry
    and closes on exit.
    """

    def __init__(
        self,
        *,
        connect: Callable[[], C],
        transactional_id: str,
        bootstrap_servers: str = DEFAULT_BOOTSTRAP_SERVERS,
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
        participant: Callable[[], Participant] | None = None,
        observe: Observer = observe_nothing,
    ) -> None:
        if timeout_ms < 1:
            raise ValueError("timeout_ms must be positive, because waiting forever is not supported")
        new_participant = participant or participant_factory(bootstrap_servers, transactional_id, timeout_ms)
        self._performer = Performer(connect, new_participant, transactional_id, timeout_ms)
        self._observe = observe
        self._phase = Phase.UNRECOVERED

    @property
    def phase(self) -> Phase:
        return self._phase

    def __enter__(self) -> "DualWrite[C]":
        try:
            self.recover()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def recover(self) -> Recovery:
        """Commits or aborts the Kafka transaction that this process or an earlier process left open, depending on the
        state stored in the database.

        The call first takes over the transactional id in the database and in Kafka, so that no earlier instance can
        change anything. It waits for a limited time and can be repeated any number of times.

        Raises NotRecovered if a step failed; Fenced if another instance took over in the meantime; IllegalUse during a
        transaction and after `close`.
        """
        self._expect(Phase.UNRECOVERED, Phase.READY, Phase.FENCED)
        performer = self._performer
        last, end = self._walk(recipe.FIRST_RECOVERY_STEP)
        assert end is not None
        if end is recipe.RECOVERED:
            return Recovery(performer.stored_state, performer.open_state)
        if end.phase is Phase.FENCED:
            raise Fenced(end.rows) from performer.cause
        raise NotRecovered(last.value) from performer.cause

    @contextmanager
    def transaction(self) -> Iterator[Transaction[C]]:
        """Runs a block whose rows and messages become visible when the block ends, or never if the block raises an
        error.

        If the block raises an error, rolls back both sides and raises the same error. If the rollback in Kafka fails,
        call `recover()` before the next transaction.

        If the transaction cannot be begun or completed, raises NotCommitted if the rows were rolled back, InDoubt if
        the outcome of the rows or of the messages is still open, and Fenced if another instance has taken over. The
        attribute `rows` of InDoubt and Fenced reports the outcome of the rows, if it is known. Raises IllegalUse before
        `recover()`, during another transaction, and after `close`.
        """
        self._expect(Phase.READY)
        _, end = self._walk(recipe.FIRST_TRANSACTION_STEP)
        if end is not None:
            raise self._failure(end)
        performer = self._performer
        block = Transaction(performer.driver, performer.connection, performer.participant)
        try:
            self._observe(Step.APPLICATION, None)
            yield block
        except BaseException:
            self._end_block(block, Result.FAILED if block.has_sent else Result.FAILED_UNSENT)
            raise
        end = self._end_block(block, Result.DONE if block.has_sent else Result.NOTHING_SENT)
        if end is not recipe.COMMITTED:
            raise self._failure(end)

    def close(self) -> None:
        """Closes the connection and the producer. Open transactions remain in doubt until a later `recover()`."""
        if self._phase is Phase.IN_TRANSACTION:
            raise IllegalUse("another transaction is open")
        self._performer.give_up_connection()
        self._performer.give_up_participant()
        self._phase = Phase.CLOSED

    def _walk(self, step: Step) -> tuple[Step, End | None]:
        """Performs `step` and the steps that follow it. Returns the last step and the end that was reached, which is
        None if the block runs next."""
        self._phase = Phase.UNRECOVERED  # if a step is interrupted, for example by Ctrl-C, recovery must do the rest
        self._performer.cause = None
        while True:
            self._observe(step, None)
            result = self._performer.perform(step)
            self._observe(step, result)
            following = recipe.NEXT[step][result]
            if isinstance(following, End):
                self._phase = following.phase
                return step, following
            if following is Step.APPLICATION:
                self._phase = Phase.IN_TRANSACTION
                return step, None
            step = following

    def _end_block(self, block: Transaction[C], result: Result) -> End:
        block.close()
        self._phase = Phase.UNRECOVERED
        self._observe(Step.APPLICATION, result)
        following = recipe.NEXT[Step.APPLICATION][result]
        assert isinstance(following, Step)
        _, end = self._walk(following)
        assert end is not None
        return end

    def _expect(self, *phases: Phase) -> None:
        if self._phase not in phases:
            raise IllegalUse(f"this call is not allowed now; do this first: {self._phase.value}")

    def _failure(self, end: End) -> DualWriteError:
        """Returns the exception, including its cause, for a transaction that was not committed."""
        error: DualWriteError
        cause = self._performer.cause
        if isinstance(cause, IllegalUse):
            return cause
        match end.phase, end.rows:
            case Phase.FENCED, rows:
                error = Fenced(rows)
            case _, Fate.ROLLED_BACK:
                error = NotCommitted(end.messages)
            case _, rows:
                error = InDoubt(rows, end.messages)
        error.__cause__ = cause
        return error
