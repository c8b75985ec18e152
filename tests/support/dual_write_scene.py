"""A dual write between a real database and an in-memory Kafka. Tests can make either side fail."""

import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Generic, TypeAlias

import psycopg

from odradek.dualwrite import DualWrite, Observer, Result, Step, Transaction
from odradek.dualwrite.database import C
from tests.support.fake_two_phase import FakeKafka, FaultTime

AnyScene: TypeAlias = "Scene[Any]"
Rewrite = Callable[[str], str]
Moment = tuple[Step, FaultTime]
PsycopgConnection: TypeAlias = "psycopg.Connection[tuple[Any, ...]]"
TOPIC = "orders"
TRANSACTIONAL_ID = "orders-1"


class ProcessKilled(BaseException):
    """Raised at the point where a test kills the process."""


class NoAnswer(Exception):
    """Raised if the database does not answer."""


class Statements:
    """Faults for the next statements on any connection."""

    def __init__(self) -> None:
        # how the text of the next failing statement starts, and when the failure occurs
        self.fault: tuple[str, FaultTime] | None = None
        self.rewrite: Rewrite = lambda statement: statement  # replaced by tests that plant a bug

    def meet(self, statement: str, run: Callable[[str], Any]) -> Any:
        when = None if self.fault is None or not statement.startswith(self.fault[0]) else self.fault[1]
        if when is not None:
            self.fault = None
        if when is FaultTime.BEFORE:
            raise NoAnswer("no answer: it has not happened")
        cursor = run(self.rewrite(statement))
        if when is FaultTime.AFTER:
            raise NoAnswer("no answer: it has happened")
        return cursor


class SqliteConnection(sqlite3.Connection):
    statements: Statements

    def execute(self, statement: str, parameters: Any = (), /) -> Any:
        return self.statements.meet(statement, lambda text: super(SqliteConnection, self).execute(text, parameters))


class PostgresqlConnection(psycopg.Connection[Any]):
    statements: Statements

    def execute(self, query: Any, params: Any = None, **rest: Any) -> Any:
        text = query.decode() if isinstance(query, bytes) else query
        return self.statements.meet(
            text, lambda text: super(PostgresqlConnection, self).execute(text.encode(), params, **rest)
        )


class Scene(ABC, Generic[C]):
    """The state that outlives processes: a database with a table of orders, and Kafka. Each call of `dual()` simulates
    a new process."""

    parameter: str
    timeout_ms: int

    def __init__(self) -> None:
        self.kafka = FakeKafka()
        self.statements = Statements()
        self.is_database_away = False
        self._connections: list[C] = []

    @abstractmethod
    def open(self) -> C: ...

    @abstractmethod
    def read(self, query: str) -> Sequence[tuple[Any, ...]]: ...

    def dual(self, observe: Observer | None = None, opened: list[C] | None = None) -> DualWrite[C]:
        """Returns the dual write of a new process.

        opened  collects this process's connections, so that a test can kill this process alone
        """

        def connect() -> C:
            if self.is_database_away:
                raise NoAnswer("the database is away")
            connection = self.open()
            (self._connections if opened is None else opened).append(connection)
            return connection

        return DualWrite(
            connect=connect,
            participant=self.kafka.participant,
            transactional_id=TRANSACTIONAL_ID,
            timeout_ms=self.timeout_ms,
            observe=observe or (lambda step, result: None),
        )

    def recovered(self, observe: Observer | None = None) -> DualWrite[C]:
        dual = self.dual(observe)
        dual.recover()
        return dual

    def kill(self) -> None:
        """Closes the connections, as the operating system does when a process dies."""
        for connection in self._connections:
            connection.close()
        self._connections.clear()

    def insert(self, transaction: Transaction[C], name: str) -> None:
        transaction.execute(f"INSERT INTO orders (name) VALUES ({self.parameter})", (name,))

    def order(self, dual: DualWrite[C], *names: str, then: Callable[[Transaction[C]], object] | None = None) -> None:
        """Runs one block that sends each name as a message, writes the name as a row, and then calls `then`."""
        with dual.transaction() as transaction:
            for name in names:
                transaction.send(TOPIC, name.encode())
                self.insert(transaction, name)
            if then is not None:
                then(transaction)

    @property
    def rows(self) -> list[str]:
        return [str(name) for (name,) in self.read("SELECT name FROM orders ORDER BY number")]

    @property
    def stored_state(self) -> str:
        ((state,),) = self.read("SELECT prepared_transaction_state FROM kafka_transaction_state")
        return str(state)

    @property
    def messages(self) -> list[str]:
        """The messages that read_committed consumers see."""
        return [(value or b"").decode() for value in self.kafka.committed]


class SqliteScene(Scene[SqliteConnection]):
    parameter = "?"
    timeout_ms = 1

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._path = folder / "orders.db"
        self.read("CREATE TABLE orders (name text, number integer PRIMARY KEY)")

    def open(self) -> SqliteConnection:
        connection = sqlite3.connect(self._path, timeout=0, factory=SqliteConnection, check_same_thread=False)
        connection.statements = self.statements
        return connection

    def read(self, query: str) -> Sequence[tuple[Any, ...]]:
        connection = sqlite3.connect(self._path)
        try:
            return connection.execute(query).fetchall()
        finally:
            connection.close()


class PostgresqlScene(Scene[PostgresqlConnection]):
    parameter = "%s"
    timeout_ms = 5_000

    def __init__(self, conninfo: str) -> None:
        super().__init__()
        self._conninfo = conninfo
        self.read(
            "DROP TABLE IF EXISTS orders, kafka_transaction_state;"
            "CREATE TABLE orders (name text, number serial PRIMARY KEY)"
        )

    def open(self) -> PostgresqlConnection:
        connection = PostgresqlConnection.connect(self._conninfo)
        connection.statements = self.statements
        return connection

    def read(self, query: str) -> Sequence[tuple[Any, ...]]:
        with psycopg.connect(self._conninfo) as connection:
            cursor = connection.execute(query.encode())
            return cursor.fetchall() if cursor.description else []


class Trouble(Exception):
    """An error that the application's own code raises."""


def trouble(_: object) -> None:
    raise Trouble


def killed_at(moment: Moment) -> Observer:
    """Returns an observer that kills the process before or after a step."""

    def observe(step: Step, result: Result | None) -> None:
        if (step, FaultTime.BEFORE if result is None else FaultTime.AFTER) == moment:
            raise ProcessKilled(moment)

    return observe
