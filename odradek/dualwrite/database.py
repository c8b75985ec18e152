"""The database's side: one row per transactional id, with the prepared state and the generation that owns it.

Every recovery increments `generation`. A writer stores its state only if it finds its own generation, in the same
database transaction as its rows. After a recovery, therefore, no earlier writer can commit, and the recovery sees the
state of the last one that did (docs/adr/0010-a-dual-write-takes-the-row-first.md).
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
# Does not change the row, but locks it like a change.
CHECK = f"UPDATE {TABLE} SET generation = generation WHERE transactional_id = ? AND generation = ?"
READ = f"SELECT prepared_transaction_state, generation FROM {TABLE} WHERE transactional_id = ?"


class Cursor(Protocol):
    """The driver's own cursor, as statements in a block return it."""

    @property
    def rowcount(self) -> int: ...
    def fetchone(self) -> Row | None: ...
    def fetchall(self) -> Sequence[Row]: ...


class DatabaseConnection(Protocol):
    def close(self) -> None: ...


C = TypeVar("C", bound=DatabaseConnection)


class Driver(ABC, Generic[C]):
    """The statements for one kind of database. Transactions are begun and ended by explicit statements."""

    parameter = "?"  # placeholder of a parameter in a statement
    lock_row = ""  # the end of a SELECT that waits for writers of the row, and locks it

    @abstractmethod
    def prepare(self, connection: C) -> None:
        """Sets up a new connection: without automatic transactions, and with commits that survive a crash."""

    @abstractmethod
    def begin(self, connection: C) -> None:
        """Begins the transaction in which the application's rows are written."""

    @abstractmethod
    def begin_row_transaction(self, connection: C, timeout_ms: int) -> None:
        """Begins a transaction that reads and writes only the row, and waits this long for its holder."""

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
        """Returns rows as tuples, whatever row type the application has configured."""

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
    """The row of one transactional id. The connections belong to the caller."""

    def __init__(self, driver: Driver[C], transactional_id: str, timeout_ms: int) -> None:
        self._driver = driver
        self._id = transactional_id
        self._timeout_ms = timeout_ms

    def take_over(self, connection: C) -> int:
        """Makes the row ours, in a transaction of its own. Returns the generation with which to write from now on."""
        self._create(connection)
        self._driver.begin_row_transaction(connection, self._timeout_ms)
        ((generation,),) = self._driver.rows(connection, self._statement(TAKE_OVER), (self._id,))
        self._driver.commit(connection)
        assert isinstance(generation, int)
        return generation

    def forget(self, connection: C, generation: int) -> bool:
        """Empties the state, in a transaction of its own. Returns False if the row is no longer ours."""
        self._driver.begin_row_transaction(connection, self._timeout_ms)
        is_ours = self.write(connection, "", generation)
        self._driver.commit(connection)
        return is_ours

    def read(self, connection: C) -> StateRowContent:
        """Reads the row in a transaction of its own, after waiting until no other transaction holds it."""
        self._driver.begin_row_transaction(connection, self._timeout_ms)
        ((state, generation),) = self._driver.rows(
            connection, self._statement(READ + self._driver.lock_row), (self._id,)
        )
        self._driver.roll_back(connection)
        assert isinstance(state, str)
        assert isinstance(generation, int)
        return StateRowContent(state, generation)

    def write(self, connection: C, state: str, generation: int) -> bool:
        """Writes the state in the open transaction. Returns False if the row is no longer ours."""
        return self._changes_row(connection, WRITE, state, self._id, generation)

    def check(self, connection: C, generation: int) -> bool:
        """Returns whether the row is ours, and locks it until the end of the open transaction."""
        return self._changes_row(connection, CHECK, self._id, generation)

    def _create(self, connection: C) -> None:
        if not self._driver.has_table(connection):
            self._driver.execute(connection, CREATE)

    def _changes_row(self, connection: C, statement: str, *parameters: object) -> bool:
        return self._driver.execute(connection, self._statement(statement), parameters).rowcount == 1

    def _statement(self, statement: str) -> str:
        return statement.replace("?", self._driver.parameter)
