"""The driver for PostgreSQL, which uses psycopg 3 (the extra `postgresql`)."""

from collections.abc import Sequence
from typing import TypeAlias

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from odradek.dualwrite.database import TABLE, Cursor, Driver, Parameters, Row

PsycopgConnection: TypeAlias = "psycopg.Connection[tuple[object, ...]]"


class PostgresqlDriver(Driver[PsycopgConnection]):
    """The driver for psycopg 3. Statements are passed as bytes, because psycopg's type hints accept strings only if
    they are literals."""

    parameter = "%s"
    lock_row = " FOR UPDATE"

    def prepare(self, connection: PsycopgConnection) -> None:
        connection.autocommit = True  # BEGIN and COMMIT are sent explicitly
        ((committing,),) = self.rows(connection, "SELECT current_setting('synchronous_commit')", ())
        if committing == "off":  # with "off", a crash of the server could undo committed transactions
            connection.execute("SET synchronous_commit TO on")

    def begin(self, connection: PsycopgConnection) -> None:
        """Begins a transaction at the connection's isolation level, or else at the server's default. Every level is
        sufficient."""
        level = connection.isolation_level
        words = f"BEGIN ISOLATION LEVEL {level.name.replace('_', ' ')}" if level is not None else "BEGIN"
        self.execute(connection, words)

    def begin_row_transaction(self, connection: PsycopgConnection, timeout_ms: int) -> None:
        # After waiting for the row, the transaction must see the row's new value. At higher isolation levels it would
        # raise an error instead.
        connection.execute("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE")
        self.execute(connection, f"SET LOCAL lock_timeout = {timeout_ms}")

    def commit(self, connection: PsycopgConnection) -> None:
        answer = connection.execute("COMMIT").statusmessage
        if answer != "COMMIT":  # after a failed statement, the server rolls back without an error
            raise psycopg.errors.InFailedSqlTransaction(f"the commit was answered with {answer}")

    def is_in_transaction(self, connection: PsycopgConnection) -> bool:
        return connection.info.transaction_status is not TransactionStatus.IDLE

    def is_usable(self, connection: PsycopgConnection) -> bool:
        return not connection.closed

    def has_table(self, connection: PsycopgConnection) -> bool:
        ((name,),) = self.rows(connection, "SELECT to_regclass(%s)::text", (TABLE,))
        return name is not None

    def execute(self, connection: PsycopgConnection, statement: str, parameters: Parameters = ()) -> Cursor:
        return connection.execute(statement.encode(), parameters or None)

    def executemany(self, connection: PsycopgConnection, statement: str, parameters: Sequence[Parameters]) -> Cursor:
        cursor = connection.cursor()
        cursor.executemany(statement.encode(), parameters)
        return cursor

    def rows(self, connection: PsycopgConnection, statement: str, parameters: Parameters) -> Sequence[Row]:
        with connection.cursor(row_factory=tuple_row) as cursor:
            return cursor.execute(statement.encode(), parameters or None).fetchall()
