"""Runs Spark for tests, with long timeouts and with Python workers that start quickly.

Spark waits ten seconds for a Python planning worker to start, and no setting changes this. Most of a worker's CPU time
is spent on `pyspark.zip`, which contains only sources, so each worker spends 2 s compiling them. With a SPARK_HOME that
lacks this archive, workers import the installed package with its bytecode, in 0.5 s.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.oracle import REPOSITORY

# The spark-avro package, which `make test-spark` fetches.
AVRO_JARS = sorted((REPOSITORY / ".make" / "spark-avro" / "jars").glob("*.jar"))
HOME = ("bin", "sbin", "jars")
# These options save time in compilers and garbage collectors, because each JVM lives only for a minute.
JAVA = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
SETTINGS = {
    "spark.driver.memory": "512m",
    "spark.driver.extraJavaOptions": JAVA,
    "spark.executor.extraJavaOptions": JAVA,
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.python.authenticate.socketTimeout": "300s",
    "spark.executor.heartbeatInterval": "60s",
    "spark.network.timeout": "600s",
}
NOT_STARTED = "Python worker failed to connect back"


def environment(folder: Path) -> dict[str, str]:
    """Returns the environment for a process that starts Spark. Its SPARK_HOME is created below `folder`."""
    found = importlib.util.find_spec("pyspark")
    assert found is not None
    assert found.origin is not None
    home = folder / "spark-home"
    home.mkdir()
    for name in HOME:
        (home / name).symlink_to(Path(found.origin).parent / name)
    return {
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join([str(REPOSITORY), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep),
    }


def new_session(master: str, settings: dict[str, str] | None = None) -> Any:
    """Returns a new session. The process must have the environment that `environment` returns."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(master)
    for name, value in (SETTINGS | (settings or {})).items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")  # keeps Spark from logging a stack trace for each injected fault
    return session


def use_in_this_thread(session: Any) -> None:
    """Makes the session this thread's active session. PySpark 4.3.0 does so in the thread that created the session, but
    in other threads only for some calls. Without an active session, a write does not find formats implemented in
    Python."""
    session.createDataFrame([(0,)], "number int")


@contextmanager
def standard_error_in(file: Path) -> Iterator[None]:
    """Redirects standard error to the file. A session created in this context, and its workers, write there."""
    before = os.dup(2)
    with open(file, "ab") as stderr:
        os.dup2(stderr.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(before, 2)
        os.close(before)


def is_late(query: Any) -> bool:
    """Returns whether a query failed only because the machine was too slow for Spark's limit of ten seconds."""
    return not query.isActive and NOT_STARTED in str(query.exception())
