"""The recipe for a dual write and its recovery, as a table of steps. Source: KIP-939, "Motivation"; ADR 10 adds row
ownership.

`dual_write.py` performs a step, looks up the result here, and gets the next step or the end. The point of no return is
COMMIT_DATABASE. Every failure before this step rolls back both sides. Once COMMIT_DATABASE has been attempted, only the
state stored in the database determines the outcome.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto


class Step(Enum):
    # One transaction.
    BEGIN_DATABASE = "begin the database transaction"
    APPLICATION = "the block writes rows, sends messages, and acknowledges what it has consumed"
    PREPARE_KAFKA = "prepare the Kafka transaction: every message is acknowledged"
    WRITE_STATE = "write the prepared state into the row of the transactional id, if that row is still ours"
    COMMIT_DATABASE = "commit the database transaction"
    COMMIT_KAFKA = "commit the Kafka transaction"
    # The step for a block that sent no messages, offsets or acknowledgements. Kafka will give the next transaction the
    # same prepared state, so this transaction's state must not be stored.
    CHECK_OWNER = "check that the row is still ours, and lock it"
    COMMIT_ROWS = "commit the database transaction of a block without messages"
    # Failures.
    READ_BACK = "read the stored state over a new connection, after any transaction that still locks the row"
    ROLL_BACK_ROWS = "roll back the database transaction; no messages were sent"
    ROLL_BACK_DATABASE = "roll back the database transaction"
    ABORT_KAFKA = "abort the Kafka transaction"
    LET_GO = "roll back the database transaction; the instance that took over decides about the messages"
    # Recovery.
    TAKE_OVER_DATABASE = "make the row ours, so that no earlier writer can commit"
    TAKE_OVER_KAFKA = "init_transactions(keep_prepared=True): earlier producers are fenced"
    READ_STATE = "read the stored state, if the row is still ours"
    COMPLETE_KAFKA = "commit the open Kafka transaction if its state is the stored one, abort it otherwise"
    FORGET_STATE = "empty the stored state, because the transaction is decided"


class Result(Enum):
    DONE = auto()
    FAILED = auto()  # for COMMIT_* and COMPLETE_KAFKA, the outcome is unknown
    FENCED = auto()  # another instance owns the transactional id, according to the row's generation or the broker
    NOTHING_SENT = auto()  # result of APPLICATION: the block sent nothing
    FAILED_UNSENT = auto()  # result of APPLICATION: the block raised an error before it had sent anything
    OTHER_STATE = auto()  # result of READ_BACK: another state is stored, so this transaction was rolled back


class Fate(Enum):
    """The outcome of a transaction's rows, or of its messages."""

    COMMITTED = "committed"
    ROLLED_BACK = "rolled back"
    PENDING = "in doubt until recovery"
    OTHERS = "to be decided by the instance that took over"
    UNKNOWN = "not known"


class Phase(Enum):
    """The state of a `DualWrite`. It determines which calls are allowed."""

    UNRECOVERED = "call recover(), because a transaction may be open"
    READY = "a transaction"
    IN_TRANSACTION = "end the open transaction"
    FENCED = "call recover(), which takes the transactional id back from another instance"
    CLOSED = "nothing"


@dataclass(frozen=True, slots=True)
class End:
    rows: Fate
    messages: Fate
    phase: Phase


COMMITTED = End(Fate.COMMITTED, Fate.COMMITTED, Phase.READY)
ROLLED_BACK = End(Fate.ROLLED_BACK, Fate.ROLLED_BACK, Phase.READY)
LEFT_OPEN = End(Fate.ROLLED_BACK, Fate.PENDING, Phase.UNRECOVERED)
LEFT_PREPARED = End(Fate.COMMITTED, Fate.PENDING, Phase.UNRECOVERED)
IN_DOUBT = End(Fate.UNKNOWN, Fate.PENDING, Phase.UNRECOVERED)
ROWS_IN_DOUBT = End(Fate.UNKNOWN, Fate.ROLLED_BACK, Phase.READY)
LET_GO = End(Fate.ROLLED_BACK, Fate.OTHERS, Phase.FENCED)
COMMITTED_FENCED = End(Fate.COMMITTED, Fate.OTHERS, Phase.FENCED)
FENCED_IN_DOUBT = End(Fate.UNKNOWN, Fate.OTHERS, Phase.FENCED)
RECOVERED = COMMITTED  # the previously open transaction has the same outcome on both sides

S, R = Step, Result
# fmt: off
NEXT: Mapping[Step, Mapping[Result, Step | End]] = {
    S.BEGIN_DATABASE:     {R.DONE: S.APPLICATION,        R.FAILED: S.ROLL_BACK_ROWS},
    S.APPLICATION:        {R.DONE: S.PREPARE_KAFKA,      R.FAILED: S.ROLL_BACK_DATABASE,
                           R.NOTHING_SENT: S.CHECK_OWNER, R.FAILED_UNSENT: S.ROLL_BACK_ROWS},
    S.PREPARE_KAFKA:      {R.DONE: S.WRITE_STATE,        R.FAILED: S.ROLL_BACK_DATABASE, R.FENCED: S.LET_GO},
    S.WRITE_STATE:        {R.DONE: S.COMMIT_DATABASE,    R.FAILED: S.ROLL_BACK_DATABASE, R.FENCED: S.LET_GO},
    S.COMMIT_DATABASE:    {R.DONE: S.COMMIT_KAFKA,       R.FAILED: S.READ_BACK},
    S.COMMIT_KAFKA:       {R.DONE: COMMITTED,            R.FAILED: LEFT_PREPARED,        R.FENCED: COMMITTED_FENCED},

    S.CHECK_OWNER:        {R.DONE: S.COMMIT_ROWS,        R.FAILED: S.ROLL_BACK_ROWS,     R.FENCED: S.LET_GO},
    S.COMMIT_ROWS:        {R.DONE: COMMITTED,            R.FAILED: ROWS_IN_DOUBT},

    S.READ_BACK:          {R.DONE: S.COMMIT_KAFKA,       R.FAILED: IN_DOUBT,             R.FENCED: FENCED_IN_DOUBT,
                           R.OTHER_STATE: S.ABORT_KAFKA},
    # Even if a rollback fails, the rows are rolled back: the commit was never requested, and the connection is closed.
    S.ROLL_BACK_ROWS:     {R.DONE: ROLLED_BACK,          R.FAILED: ROLLED_BACK},
    S.ROLL_BACK_DATABASE: {R.DONE: S.ABORT_KAFKA,        R.FAILED: S.ABORT_KAFKA},
    S.ABORT_KAFKA:        {R.DONE: ROLLED_BACK,          R.FAILED: LEFT_OPEN,            R.FENCED: LET_GO},
    S.LET_GO:             {R.DONE: LET_GO,               R.FAILED: LET_GO},

    S.TAKE_OVER_DATABASE: {R.DONE: S.TAKE_OVER_KAFKA,    R.FAILED: IN_DOUBT},
    S.TAKE_OVER_KAFKA:    {R.DONE: S.READ_STATE,         R.FAILED: IN_DOUBT,             R.FENCED: FENCED_IN_DOUBT},
    S.READ_STATE:         {R.DONE: S.COMPLETE_KAFKA,     R.FAILED: IN_DOUBT,             R.FENCED: FENCED_IN_DOUBT},
    S.COMPLETE_KAFKA:     {R.DONE: S.FORGET_STATE,       R.FAILED: IN_DOUBT,             R.FENCED: FENCED_IN_DOUBT},
    S.FORGET_STATE:       {R.DONE: RECOVERED,            R.FAILED: IN_DOUBT,             R.FENCED: FENCED_IN_DOUBT},
}
# fmt: on
FIRST_TRANSACTION_STEP = Step.BEGIN_DATABASE
FIRST_RECOVERY_STEP = Step.TAKE_OVER_DATABASE


def read_back(stored_state: str, generation: int, *, own_state: str, own_generation: int) -> Result:
    """Determines, from the row's content, the outcome of a transaction whose database commit got no response.

    A prepared state identifies one transaction. If the stored state is our own, our transaction was committed,
    regardless of who owns the row now. If a different state is stored, our transaction was not committed, unless a new
    owner may have overwritten our state.
    """
    if stored_state == own_state:
        return Result.DONE
    return Result.OTHER_STATE if generation == own_generation else Result.FENCED
