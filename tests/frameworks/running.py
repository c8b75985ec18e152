"""Compiles and runs programs for Java frameworks. The frameworks come from Maven Central (tests/client_lab)."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.client_lab.installing import install_jars

PROGRAMS = Path(__file__).parent / "programs"
# Flink and Spring need access to this package, which Java 17 does not allow by default.
OPTIONS = ("-Xmx512M", "-XX:TieredStopAtLevel=1", "--add-opens=java.base/java.util=ALL-UNNAMED")
SILENT = "org.slf4j:slf4j-nop"


def class_path(name: str, *coordinates: str, slf4j: str = "1.7.36") -> str:
    """Returns a framework's class path. Its jars are downloaded only once. Logging is disabled."""
    return install_jars(name, [*coordinates, f"{SILENT}:{slf4j}"])


def compile_into(classes: Path, program: str, jars: str) -> None:
    subprocess.run(["javac", "-nowarn", "-cp", jars, "-d", str(classes), str(PROGRAMS / f"{program}.java")], check=True)


def start(program: str, jars: str, classes: Path, *words: object) -> subprocess.Popen[str]:
    """Compiles a program into the folder `classes` and starts it."""
    compile_into(classes, program, jars)
    command = ["java", *OPTIONS, "-cp", f"{classes}:{jars}", program, *map(str, words)]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=(classes / "stderr").open("wb"), text=True
    )


def lines_of(process: subprocess.Popen[str], classes: Path, patience_s: float) -> Sequence[str]:
    """Waits for the program to finish and returns its output. Raises AssertionError if it fails."""
    output, _ = process.communicate(timeout=patience_s)
    assert process.returncode == 0, f"{output}\n{(classes / 'stderr').read_text(errors='replace')[-4000:]}"
    return output.splitlines()
