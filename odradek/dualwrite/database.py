"""The database's side of a dual write: one row per transactional id, which holds the prepared state and the generation
that owns the row.

Every recovery increments `generation`. A writer stores its state only if it finds its own generation in the row, in the
same database transaction as the application's rows. As a result, no earlier writer can commit after a recovery, and the
recovery sees the state of the last writer that committed (docs/adr/0010-a-dual-write-takes-the-row-first.md).
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeAlias, TypeVar

Parameters: TypeAlias = Sequence[object] | Mapping[str, object]
Row: TypeAlias = tuple[object, ...]

TABLE = "kafka_transaction_state"
CREATE = f"""\
CREATE TABLE IF NOT EXISTS {TABLE} (
    transactional_id varchar(255) PRIMARY KEY,
    prepared_transaction_state text NOT NULL,
    generation bigint NOT NULL
)"""
TAKE_OVER = f"""\
INSERT INTO {TABLE} (transactional_id, prepared_transaction_state, generation) VALUES (?, '', 1)
ON CONFLICT (transactional_id) DO UPDATE SET generation = {TABLE}.generation + 1
RETURNING generation"""
WRITE = f"UPDATE {TABLE} SET prepared_transaction_state = ? WHERE transactional_id = ? AND generation = ?"
# Locks the row as a change would, but keeps its content.
CHECK = f"UPDATE {TABLE} SET generation = generation WHERE transactional_id = ? AND generation = ?"
READ = f"SELECT prepared_transaction_state, generation FROM {TABLE} WHERE transactional_id = ?"


class Cursor(Protocol):
    """The database driver's cursor, as returned by statements in a block."""

    @property
    def rowcount(self) -> int: ...
    def fetchone(self) -> Row | None: ...
    def fetchall(self) -> Sequence[Row]: ...


class DatabaseConnection(Protocol):
    def close(self) -> None: ...


C = TypeVar("C", bound=DatabaseConnection)


class Driver(ABC, Generic[C]):
    """The statements for one kind of database. Explicit statements begin and end transactions."""

    parameter = "?"  # placeholder for a parameter in a statement
    lock_row = ""  # suffix that makes a SELECT wait for writers of the row and then lock it

    @abstractmethod
    def prepare(self, connection: C) -> None:
        """Configures a new connection: disables automatic transactions and makes commits survive a crash."""

    @abstractmethod
    def begin(self, connection: C) -> None:
        """Begins the transaction for writing the application's rows."""

    @abstractmethod
    def begin_row_transaction(self, connection: C, timeout_ms: int) -> None:
        """Begins a transaction that reads and writes only the row. Its statements wait up to `timeout_ms` for another
        transaction that holds the row."""

    @abstractmethod
    def is_in_transaction(self, connection: C) -> bool: ...

    @abstractmethod
    def is_usable(self, connection: C) -> bool: ...

    @abstractmethod
    def has_table(self, connection: C) -> bool: ...

    @abstractmethod
    def execute(self, connection: C, statement: str, parameters: Parameters = ()) -> Cursor: ...

    @abstractmethod
    def executemany(self, connection: C, statement: str, parameters: Sequence[Parameters]) -> Cursor: ...

    @abstractmethod
    def rows(self, connection: C, statement: str, parameters: Parameters) -> Sequence[Row]:
        """Returns rows as tuples, regardless of the row type that the application has configured."""

    def commit(self, connection: C) -> None:
        self.execute(connection, "COMMIT")

    def roll_back(self, connection: C) -> None:
        if self.is_in_transaction(connection):
            self.execute(connection, "ROLLBACK")


@dataclass(frozen=True, slots=True)
class StateRowContent:
    state: str
    generation: int


class StateRow(Generic[C]):
    """The row for one transactional id. Each method receives a connection that belongs to the caller."""

    def __init__(self, driver: Driver[C], transactional_id: str, timeout_ms: int) -> None:
        self._driver = driver
        self._id = transactional_id
        self._timeout_ms = timeout_ms

    def take_over(self, connection: C) -> int:
        """Takes ownership of the row, in a separate transaction. Returns the new generation, which every later write
        must pass."""
        self._create(connection)
        self._driver.begin_row_transaction(connection, self._timeout_ms)
        ((generation,),) = self._driver.rows(connection, self._statement(TAKE_OVER), (self._id,))
        self._driver.commit(connection)
        assert isinstance(generation, int)
        return generation

    def forget(self, connection: C, generation: int) -> bool:
        """Clears the state, in a separate transaction. Returns False if the row now belongs to another generation."""
        self._driver.begin_row_transaction(connection, self._timeout_ms)
        is_ours = self.write(connection, "", generation)
        self._driver.commit(connection)
        return is_ours

    def read(self, connection: C) -> StateRowContent:
        """Reads the row in a separate transaction. Waits until no other transaction holds the row."""
        self._driver.begin_row_transaction(connection, self._timeout_ms)
        ((state, generation),) = self._driver.rows(
            connection, self._statement(READ + self._driver.lock_row), (self._id,)
        )
        self._driver.roll_back(connection)
        assert isinstance(state, str)
        assert isinstance(generation, int)
        return StateRowContent(state, generation)

    def write(self, connection: C, state: str, generation: int) -> bool:
        """Writes the state in the open transaction. Returns False if the row now belongs to another generation."""
        return self._changes_row(connection, WRITE, state, self._id, generation)

    def check(self, connection: C, generation: int) -> bool:
        """Returns whether the row still belongs to this generation and locks it until the open transaction ends."""
        return self._changes_row(connection, CHECK, self._id, generation)

    def _create(self, connection: C) -> None:
        if not self._driver.has_table(connection):
            self._driver.execute(connection, CREATE)

    def _changes_row(self, connection: C, statement: str, *parameters: object) -> bool:
        return self._driver.execute(connection, self._statement(statement), parameters).rowcount == 1

    def _statement(self, statement: str) -> str:
        return statement.replace("?", self._driver.parameter)
