"""Which database driver a connection belongs to."""

import sqlite3
from typing import cast

from odradek.dualwrite.database import C, Driver
from odradek.dualwrite.sqlite import SqliteDriver


def driver_of(connection: C) -> Driver[C]:
    """Raises TypeError for a connection of a library that is not known here."""
    if isinstance(connection, sqlite3.Connection):
        return cast("Driver[C]", SqliteDriver())
    if any(each.__module__.partition(".")[0] == "psycopg" for each in type(connection).__mro__):
        from odradek.dualwrite.postgresql import PostgresqlDriver  # psycopg need not be installed otherwise

        return cast("Driver[C]", PostgresqlDriver())
    raise TypeError(f"a connection of sqlite3 or of psycopg 3 is needed, not {type(connection)!r}")
