"""Performs individual steps of the recipe. The caller follows the recipe's order."""

from collections.abc import Callable
from contextlib import suppress
from typing import Generic, TypeVar

from odradek.dualwrite import recipe
from odradek.dualwrite.database import C, Driver, StateRow
from odradek.dualwrite.drivers import driver_of
from odradek.dualwrite.errors import IllegalUse
from odradek.dualwrite.participant import Participant, ParticipantFenced
from odradek.dualwrite.recipe import Result, Step

T = TypeVar("T")


class Performer(Generic[C]):
    """Performs steps, using a connection and a producer that it owns. The connection is reused until it fails or a
    recovery begins, and the producer is reused until the next recovery."""

    def __init__(
        self,
        connect: Callable[[], C],
        new_participant: Callable[[], Participant],
        transactional_id: str,
        timeout_ms: int,
    ) -> None:
        self._connect = connect
        self._new_participant = new_participant
        self._transactional_id = transactional_id
        self._timeout_ms = timeout_ms
        self._database: tuple[Driver[C], StateRow[C]] | None = None  # set after the first connection
        self._connection: C | None = None
        self._participant: Participant | None = None
        self._generation = 0
        self._own_state = ""  # state of the prepared transaction
        self._steps: dict[Step, Callable[[], Result]] = {
            Step.BEGIN_DATABASE: self._begin_database,
            Step.PREPARE_KAFKA: self._prepare_kafka,
            Step.WRITE_STATE: self._write_state,
            Step.COMMIT_DATABASE: self._commit_database,
            Step.COMMIT_KAFKA: self._commit_kafka,
            Step.CHECK_OWNER: self._check_owner,
            Step.COMMIT_ROWS: self._commit_database,
            Step.READ_BACK: self._read_back,
            Step.ROLL_BACK_ROWS: self._roll_back_database,
            Step.ROLL_BACK_DATABASE: self._roll_back_database,
            Step.ABORT_KAFKA: self._abort_kafka,
            Step.LET_GO: self._roll_back_database,
            Step.TAKE_OVER_DATABASE: self._take_over_database,
            Step.TAKE_OVER_KAFKA: self._take_over_kafka,
            Step.READ_STATE: self._read_state,
            Step.COMPLETE_KAFKA: self._complete_kafka,
            Step.FORGET_STATE: self._forget_state,
        }
        self.stored_state = ""  # state that recovery found in the database
        self.open_state = ""  # state of the open transaction that recovery found in Kafka
        self.cause: Exception | None = None  # the first failure, until it is reset to None

    def perform(self, step: Step) -> Result:
        """Performs a step and returns its result. An exception is converted to a result; the first exception is stored
        as `cause`."""
        try:
            return self._steps[step]()
        except ParticipantFenced as error:
            self.cause = self.cause or error
            return Result.FENCED
        except Exception as error:
            self.cause = self.cause or error
            return Result.FAILED

    @property
    def driver(self) -> Driver[C]:
        assert self._database is not None, "no database connection has been opened yet"
        return self._database[0]

    @property
    def _row(self) -> StateRow[C]:
        assert self._database is not None, "no database connection has been opened yet"
        return self._database[1]

    @property
    def connection(self) -> C:
        assert self._connection is not None, "no database transaction has begun"
        return self._connection

    @property
    def participant(self) -> Participant:
        assert self._participant is not None, "recovery has not run yet"
        return self._participant

    def give_up_connection(self) -> None:
        """Closes the connection. The database rolls back its open transaction."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(Exception):  # the connection may be broken; that is why it is given up
                connection.close()

    def give_up_participant(self) -> None:
        participant, self._participant = self._participant, None
        if participant is not None:
            with suppress(Exception):
                participant.close()

    # One transaction.

    def _begin_database(self) -> Result:
        if self._connection is not None and not self.driver.is_usable(self._connection):
            self.give_up_connection()
        if self._connection is None:
            self._connection = self._new_connection()
        self.driver.begin(self._connection)
        return Result.DONE

    def _prepare_kafka(self) -> Result:
        self._own_state = self.participant.prepare()
        if not self._own_state:
            raise RuntimeError("messages were sent, but the transaction has no prepared state")
        return Result.DONE

    def _write_state(self) -> Result:
        self._check_transaction()
        is_ours = self._row.write(self.connection, self._own_state, self._generation)
        return Result.DONE if is_ours else Result.FENCED

    def _commit_database(self) -> Result:
        try:
            self.driver.commit(self.connection)
        except BaseException:
            self.give_up_connection()  # a transaction that is still open would keep the row locked
            raise
        return Result.DONE

    def _commit_kafka(self) -> Result:
        self.participant.complete(self._own_state)
        return Result.DONE

    def _check_owner(self) -> Result:
        self._check_transaction()
        return Result.DONE if self._row.check(self.connection, self._generation) else Result.FENCED

    def _check_transaction(self) -> None:
        if not self.driver.is_in_transaction(self.connection):
            raise IllegalUse(
                "the block itself ended the database transaction, so rows that it wrote before may be committed"
            )

    # Failures.

    def _read_back(self) -> Result:
        stored = self._over_new_connection(lambda connection: self._row.read(connection))
        return recipe.read_back(
            stored.state, stored.generation, own_state=self._own_state, own_generation=self._generation
        )

    def _roll_back_database(self) -> Result:
        if self._connection is not None:
            try:
                self.driver.roll_back(self._connection)
            except BaseException:
                self.give_up_connection()
                raise
        return Result.DONE

    def _abort_kafka(self) -> Result:
        self.participant.abort()
        return Result.DONE

    # Recovery.

    def _take_over_database(self) -> Result:
        self.give_up_connection()
        self._generation = self._over_new_connection(lambda connection: self._row.take_over(connection))
        return Result.DONE

    def _take_over_kafka(self) -> Result:
        self.give_up_participant()
        self._participant = self._new_participant()
        self.open_state = self._participant.take_over()
        return Result.DONE

    def _read_state(self) -> Result:
        stored = self._over_new_connection(lambda connection: self._row.read(connection))
        self.stored_state = stored.state
        return Result.DONE if stored.generation == self._generation else Result.FENCED

    def _complete_kafka(self) -> Result:
        if self.open_state:
            self.participant.complete(self.stored_state)
        return Result.DONE

    def _forget_state(self) -> Result:
        is_ours = self._over_new_connection(lambda connection: self._row.forget(connection, self._generation))
        return Result.DONE if is_ours else Result.FENCED

    def _over_new_connection(self, use: Callable[[C], T]) -> T:
        connection = self._new_connection()
        try:
            return use(connection)
        finally:
            connection.close()

    def _new_connection(self) -> C:
        connection = self._connect()
        try:
            if self._database is None:
                driver = driver_of(connection)
                self._database = driver, StateRow(driver, self._transactional_id, self._timeout_ms)
            self.driver.prepare(connection)
        except BaseException:
            connection.close()
            raise
        return connection
