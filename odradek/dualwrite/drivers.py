"""The driver for SQLite, which uses the standard library's `sqlite3`, and the function that selects the driver for a
connection."""

import sqlite3
from collections.abc import Sequence
from typing import cast

from odradek.dualwrite.database import TABLE, C, Cursor, Driver, Parameters, Row

FULL = 2
FIRST_SQLITE_WITH_RETURNING = (3, 35, 0)


class SqliteDriver(Driver[sqlite3.Connection]):
    """The driver for SQLite. A block locks the database for writing when it begins (BEGIN IMMEDIATE), because SQLite
    could otherwise refuse the lock in the middle of the block."""

    def prepare(self, connection: sqlite3.Connection) -> None:
        if sqlite3.sqlite_version_info < FIRST_SQLITE_WITH_RETURNING:
            raise RuntimeError(f"SQLite 3.35 or later is needed, but this is {sqlite3.sqlite_version}")
        # Python 3.12 added `autocommit` as a second switch. With this value, only `isolation_level` has an effect.
        if hasattr(connection, "autocommit"):
            connection.autocommit = sqlite3.LEGACY_TRANSACTION_CONTROL  # type: ignore[attr-defined]
        connection.isolation_level = None
        # At any level below FULL, a power failure can undo committed transactions. With a WAL journal, this includes
        # NORMAL.
        ((synchronous,),) = self.rows(connection, "PRAGMA synchronous", ())
        if isinstance(synchronous, int) and synchronous < FULL:
            connection.execute(f"PRAGMA synchronous = {FULL}")

    def begin(self, connection: sqlite3.Connection) -> None:
        connection.execute("BEGIN IMMEDIATE")

    def begin_row_transaction(self, connection: sqlite3.Connection, timeout_ms: int) -> None:
        connection.execute(f"PRAGMA busy_timeout = {timeout_ms}")
        connection.execute("BEGIN IMMEDIATE")

    def is_in_transaction(self, connection: sqlite3.Connection) -> bool:
        return connection.in_transaction

    def is_usable(self, connection: sqlite3.Connection) -> bool:
        return True  # there is no server, so no connection can be lost

    def has_table(self, connection: sqlite3.Connection) -> bool:
        return bool(self.rows(connection, "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", (TABLE,)))

    def execute(self, connection: sqlite3.Connection, statement: str, parameters: Parameters = ()) -> Cursor:
        return connection.execute(statement, parameters)

    def executemany(self, connection: sqlite3.Connection, statement: str, parameters: Sequence[Parameters]) -> Cursor:
        return connection.executemany(statement, parameters)

    def rows(self, connection: sqlite3.Connection, statement: str, parameters: Parameters) -> Sequence[Row]:
        cursor = connection.cursor()
        cursor.row_factory = None
        return cursor.execute(statement, parameters).fetchall()


def driver_of(connection: C) -> Driver[C]:
    """Returns the driver for a connection. Raises TypeError if its library is unknown."""
    if isinstance(connection, sqlite3.Connection):
        return cast("Driver[C]", SqliteDriver())
    if any(each.__module__.partition(".")[0] == "psycopg" for each in type(connection).__mro__):
        # Imported here because psycopg is optional.
        from odradek.dualwrite.postgresql import PostgresqlDriver

        return cast("Driver[C]", PostgresqlDriver())
    raise TypeError(f"the connection must be from sqlite3 or psycopg 3, not {type(connection)!r}")
