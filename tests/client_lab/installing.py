"""Installs releases of clients from their package registries, each in a separate folder below .make/history."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
FOLDER = REPOSITORY / ".make" / "history"
PROGRAMS = Path(__file__).parent / "programs"
DRIVERS = REPOSITORY / "examples" / "judge_drivers"
LOGGER = "org.slf4j:slf4j-nop:1.7.36"  # for Kafka Streams, whose jars need a logger but do not depend on one
COPY_DEPENDENCIES = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"


@dataclass(frozen=True, slots=True)
class InstalledClient:
    """The command that runs a program with one release, and the environment variables that it needs."""

    words: list[str]
    environment: Mapping[str, str]

    @property
    def command(self) -> list[str]:
        """Returns the command including its environment, for callers that can pass only a list of words."""
        return ["env", *(f"{name}={value}" for name, value in self.environment.items()), *self.words]


def install(
    package: str, version: str, program: Path, needs: tuple[str, ...] = (), python: str = sys.executable
) -> InstalledClient:
    """Installs a release unless it is already installed. Returns the command that runs the program with the release.

    The suffix of the program selects the registry: PyPI, npm, crates.io, Maven Central or the Go proxy. Raises
    CalledProcessError if the installation fails.

    needs   additional packages, with versions; `name+feature` for a crate
    python  the interpreter to use, if the release has wheels only for an older Python
    """
    folder = FOLDER / f"{package.replace('/', '_').replace(':', '_')}-{version}"
    suffix = program.suffix
    if suffix == ".py":
        _once(folder, lambda: _python(python, folder, [f"{package}=={version}", *needs]))
        return InstalledClient([str(folder / "bin" / "python"), str(program)], {})
    if suffix == ".js":
        _once(folder, lambda: _node(folder, [f"{package}@{version}", *needs]))
        return InstalledClient(["node", str(program)], {"NODE_PATH": str(folder / "node_modules")})
    if suffix == ".java":
        jars = install_jars(folder.name, [f"{package}:{version}", *needs])
        return InstalledClient(["java", "-cp", jars, str(program)], {})
    if suffix == ".rs":
        _once(folder, lambda: _cargo(folder, [f"{package}@{version}", *needs]))
        (folder / "src" / "main.rs").write_text(program.read_text(encoding="utf-8"), encoding="utf-8")
        _run(["cargo", "build", "--quiet", "--jobs", "1"], folder)
        return InstalledClient([str(folder / "target" / "debug" / "history")], {})
    _once(folder, lambda: _go(folder, [f"{package}@v{version}", *needs]))
    binary = folder / program.stem
    # Sarama's module used to belong to Shopify. The program must import the package of this release.
    imported = program.read_text(encoding="utf-8").replace("github.com/IBM/sarama", package)
    (folder / "main.go").write_text(imported, encoding="utf-8")
    way_in = folder / "way_in.go"
    way_in.unlink(missing_ok=True)
    if "func main()" not in imported:
        shutil.copyfile(PROGRAMS / "main.go", way_in)
    _run(["go", "build", "-mod=mod", "-p", "1", "-o", str(binary), "."], folder)
    return InstalledClient([str(binary)], {})


def install_jars(name: str, coordinates: Sequence[str]) -> str:
    """Installs jars and their dependencies in the folder `name` and returns a class path with all of them.

    Each coordinate is group:artifact:version, optionally followed by a classifier. Raises CalledProcessError if the
    installation fails.
    """
    folder = FOLDER / name
    _once(folder, lambda: _maven(folder, coordinates))
    return str(folder / "target" / "dependency" / "*")


def install_kafka_streams(version: str) -> str:
    """Installs the jars of Kafka Streams and returns a class path with all of them. Raises CalledProcessError if the
    installation fails."""
    return install_jars(f"kafka-streams-{version}", [f"org.apache.kafka:kafka-streams:{version}", LOGGER])


def _maven(folder: Path, coordinates: Sequence[str]) -> None:
    fields = ("groupId", "artifactId", "version", "classifier")
    dependencies = "".join(
        "<dependency>"
        + "".join(f"<{field}>{value}</{field}>" for field, value in zip(fields, each.split(":"), strict=False))
        + "</dependency>"
        for each in coordinates
    )
    model = "<modelVersion>4.0.0</modelVersion><groupId>history</groupId><artifactId>history</artifactId>"
    text = f"<project>{model}<version>1</version><dependencies>{dependencies}</dependencies></project>"
    (folder / "pom.xml").write_text(text, encoding="utf-8")
    _run(["mvn", "--quiet", "--batch-mode", COPY_DEPENDENCIES], folder)


def interpreter(version: str | None) -> str | None:
    """Returns the path of a Python interpreter of this version, from pyenv or the PATH, or None if none is installed.
    Without `version`, returns the running interpreter."""
    if version is None:
        return sys.executable
    found = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
    return str(found[-1]) if found else shutil.which(f"python{version}")


def _once(folder: Path, make: Callable[[], None]) -> None:
    """Calls `make` to fill a folder, unless it is already filled. If two processes need the same folder, one waits for
    the other."""
    done = folder / ".installed"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            make()
            done.touch()


def _python(python: str, folder: Path, packages: list[str]) -> None:
    _run([python, "-m", "venv", "."], folder)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    _run([*pip, *packages], folder)


def _node(folder: Path, packages: list[str]) -> None:
    _run(["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", ".", *packages], folder)


def _cargo(folder: Path, crates: list[str]) -> None:
    _run(["cargo", "init", "--quiet", "--vcs", "none", "--name", "history"], folder)
    for crate in crates:
        name, _, features = crate.partition("+")
        _run(["cargo", "add", "--quiet", name, *(["--features", features] if features else [])], folder)


def _go(folder: Path, packages: list[str]) -> None:
    (folder / "main.go").write_text("package main\n\nfunc main() {}\n", encoding="utf-8")
    _run(["go", "mod", "init", "history"], folder)
    _run(["go", "get", *packages], folder)


def _run(words: list[str], folder: Path) -> None:
    subprocess.run(words, cwd=folder, check=True, capture_output=True)
