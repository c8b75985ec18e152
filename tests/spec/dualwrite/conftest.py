"""Fixtures for the dual-write tests. A test that requests the `scene` fixture runs once on SQLite and once on
PostgreSQL."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.dual_write_scene import AnyScene, PostgresqlScene, SqliteScene
from tests.support.postgresql import PostgresqlProcess, why_not

# The databases are in memory, where synced commits are fast. A real disk would not make the tests stronger, because
# they kill processes but never cut the power.
MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


@pytest.fixture(scope="session")
def postgresql() -> Iterator[PostgresqlProcess]:
    reason = why_not()
    if reason is not None:
        pytest.skip(reason)
    with PostgresqlProcess(is_synced=False) as running:
        yield running


@pytest.fixture
def sqlite_scene() -> Iterator[SqliteScene]:
    with tempfile.TemporaryDirectory(prefix="dual-write-", dir=MEMORY) as folder:
        made = SqliteScene(Path(folder))
        yield made
        made.kill()


@pytest.fixture
def postgresql_scene(postgresql: PostgresqlProcess) -> Iterator[PostgresqlScene]:
    made = PostgresqlScene(postgresql.conninfo)
    yield made
    made.kill()


@pytest.fixture(params=["sqlite_scene", "postgresql_scene"])
def scene(request: pytest.FixtureRequest) -> AnyScene:
    made: AnyScene = request.getfixturevalue(request.param)
    return made
