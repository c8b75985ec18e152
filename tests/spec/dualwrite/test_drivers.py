"""Tests dual writes with the drivers of SQLite and PostgreSQL, including synced commits and isolation levels."""

import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg
import pytest

from odradek.dualwrite import DualWrite, NotCommitted
from odradek.dualwrite.drivers import SqliteDriver, driver_of
from odradek.dualwrite.postgresql import PostgresqlDriver
from tests.support.dual_write_scene import PostgresqlScene, SqliteScene
from tests.support.fake_two_phase import FakeKafka
from tests.support.oracle import REPOSITORY
from tests.support.postgresql import PostgresqlProcess


def test_another_library_is_refused_by_name(tmp_path: Path) -> None:
    class Connection:
        def close(self) -> None:
            pass

    with pytest.raises(TypeError, match="Connection"):
        driver_of(Connection())


def test_nobody_needs_psycopg_for_sqlite() -> None:
    script = (
        "import sys; sys.modules['psycopg'] = None\n"
        "import sqlite3; from odradek.dualwrite.drivers import driver_of\n"
        "print(type(driver_of(sqlite3.connect(':memory:'))).__name__)"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    assert done.stdout == "SqliteDriver\n"


def test_waiting_without_end_is_refused() -> None:
    with pytest.raises(ValueError, match="timeout_ms"):
        DualWrite(connect=lambda: sqlite3.connect(":memory:"), transactional_id="a", timeout_ms=0)


@pytest.mark.parametrize(("given", "used"), [("OFF", 2), ("NORMAL", 2), ("FULL", 2), ("EXTRA", 3)])
def test_sqlite_syncs_its_commits_at_least(tmp_path: Path, given: str, used: int) -> None:
    connection = sqlite3.connect(tmp_path / "a.db")
    connection.execute(f"PRAGMA synchronous = {given}")
    SqliteDriver().prepare(connection)
    assert connection.execute("PRAGMA synchronous").fetchone() == (used,)
    connection.close()


@pytest.mark.parametrize(("given", "used"), [("off", "on"), ("local", "local"), ("on", "on")])
def test_postgresql_syncs_its_commits_at_least(postgresql: PostgresqlProcess, given: str, used: str) -> None:
    with psycopg.connect(postgresql.conninfo, options=f"-c synchronous_commit={given}") as connection:
        PostgresqlDriver().prepare(connection)
        assert connection.execute("SHOW synchronous_commit").fetchone() == (used,)


@pytest.mark.parametrize("level", ["DEFERRED", "IMMEDIATE", "EXCLUSIVE", None])
def test_a_block_is_one_transaction_at_every_isolation_level_of_sqlite(sqlite_scene: SqliteScene, level: Any) -> None:
    scene = sqlite_scene
    dual = opened_by(scene, lambda connection: setattr(connection, "isolation_level", level))
    scene.order(dual, "tea", "milk", then=lambda transaction: transaction.execute("CREATE TABLE more (name text)"))
    assert scene.rows == scene.messages == ["tea", "milk"]


@pytest.mark.parametrize("is_autocommit", [False, True])
@pytest.mark.parametrize("level", [*psycopg.IsolationLevel, None])
def test_at_every_isolation_level_of_postgresql_the_block_is_one_transaction(
    postgresql_scene: PostgresqlScene, level: Any, is_autocommit: bool
) -> None:
    scene = postgresql_scene
    levels = []

    def set_up(connection: Any) -> None:
        connection.autocommit = is_autocommit
        connection.isolation_level = level

    dual = opened_by(scene, set_up)
    scene.order(
        dual,
        "tea",
        "milk",
        then=lambda transaction: levels.append(transaction.execute("SHOW transaction_isolation").fetchone()),
    )
    assert scene.rows == scene.messages == ["tea", "milk"]
    assert levels == [("read committed" if level is None else level.name.lower().replace("_", " "),)]


def test_the_application_may_set_a_row_factory_with_postgresql(postgresql_scene: PostgresqlScene) -> None:
    scene = postgresql_scene
    dual = opened_by(scene, lambda connection: setattr(connection, "row_factory", psycopg.rows.dict_row))
    scene.order(dual, "tea")
    assert dual.recover().stored_state == "1000:0"


def test_the_application_may_set_a_row_factory_with_sqlite(sqlite_scene: SqliteScene) -> None:
    scene = sqlite_scene
    dual = opened_by(scene, lambda connection: setattr(connection, "row_factory", lambda cursor, row: {"row": row}))
    scene.order(dual, "tea")
    assert dual.recover().stored_state == "1000:0"


def test_a_constraint_that_fails_only_at_the_commit_rolls_both_back(postgresql_scene: PostgresqlScene) -> None:
    scene = postgresql_scene
    scene.read("ALTER TABLE orders ADD UNIQUE (name) DEFERRABLE INITIALLY DEFERRED")
    dual = scene.recovered()
    scene.order(dual, "tea")
    with pytest.raises(NotCommitted) as caught:
        scene.order(dual, "tea")
    assert isinstance(caught.value.__cause__, psycopg.errors.UniqueViolation)
    assert scene.rows == scene.messages == ["tea"]


def test_a_failed_statement_that_the_block_swallows_fails_the_whole_in_postgresql(
    postgresql_scene: PostgresqlScene,
) -> None:
    scene = postgresql_scene

    def stumble(transaction: Any) -> None:
        with pytest.raises(psycopg.errors.UndefinedTable):
            transaction.execute("SELECT * FROM nothing")

    with pytest.raises(NotCommitted):
        scene.order(scene.recovered(), "tea", then=stumble)
    assert scene.rows == scene.messages == []


def test_a_savepoint_of_psycopg_stays_within_the_block(postgresql_scene: PostgresqlScene) -> None:
    """Checks that psycopg's `transaction()` does not commit the rows before the block ends. It would commit them if it
    were the outermost block."""
    scene = postgresql_scene

    def save(transaction: Any) -> None:
        with transaction.connection.transaction():
            scene.insert(transaction, "milk")
        assert scene.rows == []

    dual = scene.recovered()
    scene.order(dual, then=save)
    assert scene.rows == ["milk"]


def test_a_connection_that_broke_between_two_blocks_is_replaced(postgresql_scene: PostgresqlScene) -> None:
    scene = postgresql_scene
    dual = scene.recovered()
    scene.order(dual, "tea")
    scene.kill()
    scene.order(dual, "milk")
    assert scene.rows == scene.messages == ["tea", "milk"]


def test_another_role_that_may_create_tables_can_create_the_state_table(postgresql_scene: PostgresqlScene) -> None:
    scene = postgresql_scene
    scene.recovered().close()
    scene.read("DROP ROLE IF EXISTS writer; CREATE ROLE writer")
    scene.read("GRANT ALL ON orders, orders_number_seq, kafka_transaction_state TO writer")
    dual = opened_by(scene, lambda connection: connection.execute("SET ROLE writer") and connection.commit())
    scene.order(dual, "tea")
    assert scene.rows == scene.messages == ["tea"]
    scene.read("DROP OWNED BY writer; DROP ROLE writer")


def opened_by(scene: Any, set_up: Any) -> Any:
    """Returns a recovered dual write whose connections are configured by `set_up`, as an application might configure
    them."""

    def connect() -> Any:
        connection = scene.open()
        set_up(connection)
        return connection

    kafka: FakeKafka = scene.kafka
    dual = DualWrite(connect=connect, participant=kafka.participant, transactional_id="orders-1", timeout_ms=1_000)
    dual.recover()
    return dual
