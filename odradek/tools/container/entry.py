"""The image's entry point. Runs a broker, any other `odradek` command, or another program in the image.

docker run IMAGE                             odradek serve
docker run IMAGE --override NAME=VALUE       odradek serve --override NAME=VALUE
docker run IMAGE topics list -b broker:9092  odradek topics list -b broker:9092
docker run IMAGE sh -c '…'                   the program, as Testcontainers does

To start quickly, this module imports only what the broker needs before it accepts the first connection.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from enum import Enum, auto
from pathlib import Path

HELP_WORDS = frozenset({"-h", "--help"})
SHELL_NOT_FOUND = 127  # a shell's exit status if a program does not exist
SIGTERM_EXIT = 128 + signal.SIGTERM
# Testcontainers and other programs search the log of a Kafka broker for these texts. This broker logs all of them on
# one line.
READY_NOTE = (
    "Transitioning from RECOVERY to RUNNING. Kafka Server started. [KafkaServer id={node_id}] started"
    " (kafka.server.KafkaServer)"
)


# The directory of the scripts that bitnami/kafka runs once, before the first start. The mark is a file that exists if
# these scripts have been run.
START_SCRIPTS = Path("/docker-entrypoint-initdb.d")
START_SCRIPTS_MARK = Path("/bitnami/kafka/.user_scripts_initialized")


class StartScriptFailed(Exception):
    """A script that runs before the first start has failed."""


class Invocation(Enum):
    SERVE = auto()
    COMMAND = auto()
    PROGRAM = auto()


def kind_of(words: Sequence[str], commands: Sequence[str]) -> tuple[Invocation, list[str]]:
    """Returns the kind of program that `words` request, and that program's arguments. `words` are the arguments after
    the image's name."""
    rest = list(words)
    if rest and rest[0] == "odradek":
        del rest[0]
    if not rest or (rest[0].startswith("-") and rest[0] not in HELP_WORDS):
        return Invocation.SERVE, rest
    if rest[0] == "serve" and not HELP_WORDS.intersection(rest):
        return Invocation.SERVE, rest[1:]
    if rest[0] in commands or rest[0].startswith("-"):
        return Invocation.COMMAND, rest
    return Invocation.PROGRAM, rest


def main(words: Sequence[str] | None = None) -> int:
    # A container's process 1 has no default action for SIGTERM, but SIGTERM must be able to interrupt a start-up.
    signal.signal(signal.SIGTERM, lambda *_: os._exit(SIGTERM_EXIT))
    words = sys.argv[1:] if words is None else words
    kind, rest = kind_of(words, () if not words else _commands())
    match kind:
        case Invocation.SERVE:
            return serve(rest)
        case Invocation.COMMAND if rest[0] == "health" and not HELP_WORDS.intersection(rest):
            from odradek.tools.container.health import main as health

            return health(rest[1:])
        case Invocation.COMMAND:
            from odradek.tools.commands.tree import run as command

            return command(rest)
        case Invocation.PROGRAM:
            return _become(rest)


def serve(words: Sequence[str]) -> int:
    from dataclasses import replace

    from odradek.protocol.java_properties import parse_properties
    from odradek.serve import USAGE, UsageError, parse_options, run
    from odradek.tools.container.environment import SecretMissing, complete, data_directory, mounted_configuration
    from odradek.tools.container.other_images import InvalidVariable, as_apache_kafka

    try:
        options = parse_options(words)
    except UsageError as error:
        print(f"odradek serve: {error}\n{USAGE}", file=sys.stderr)
        return 2
    if options.config is None:
        options = replace(options, config=mounted_configuration())
    try:
        in_file = {} if options.config is None else parse_properties(options.config.read_text(encoding="utf-8"))
        mapped = as_apache_kafka(os.environ, in_file, read_file=_read_file, is_file=os.path.isfile)
        directory = options.data_dir or data_directory(mapped.variables, in_file)
        environment = complete(
            mapped.variables, in_file, read_secret=_read_secret, formatted_cluster_id=_cluster_id(directory)
        )
    except (OSError, SecretMissing, InvalidVariable) as error:
        print(f"odradek: {error}", file=sys.stderr)
        return 1
    try:
        scripts = run_start_scripts(START_SCRIPTS, START_SCRIPTS_MARK)
    except (OSError, StartScriptFailed) as error:
        print(f"odradek: {error}", file=sys.stderr)
        return 1
    os.environ.clear()
    os.environ.update(environment.variables)
    return run(
        options,
        notes=(*mapped.notes, *environment.notes, *scripts),
        warnings=mapped.warnings,
        ready_note=READY_NOTE,
        users=[(login.user, login.password, login.mechanism) for login in mapped.scram_logins],
    )


def run_start_scripts(directory: Path, mark: Path) -> list[str]:
    """Runs the scripts in `directory` whose names end with .sh, sorted by name, and then creates the file `mark`. Does
    nothing if `mark` already exists. Returns notes for the log. Raises StartScriptFailed or OSError."""
    if mark.exists() or not directory.is_dir():
        return []
    files = sorted(path for path in directory.iterdir() if path.is_file())
    scripts = [path for path in files if path.suffix == ".sh"]
    if not scripts:
        return []
    import subprocess

    notes = []
    for path in files:
        if path not in scripts:
            notes.append(f"{path} is ignored, because its name does not end with .sh")
            continue
        # Bitnami's own script, which also runs in bash, sources files that are not executable.
        words = [str(path)] if os.access(path, os.X_OK) else ["bash", str(path)]
        status = subprocess.run(words, check=False).returncode
        if status:
            raise StartScriptFailed(f"{path} failed with status {status}, so the broker does not start")
        notes.append(f"{path} was run")
    mark.touch()
    return notes


def _read_file(path: str) -> str:
    return Path(path).read_text(encoding="utf-8")


def _commands() -> Sequence[str]:
    from odradek.tools.commands.tree import COMMANDS

    return tuple(COMMANDS)


def _become(words: list[str]) -> int:
    """Replaces this process with the program, so that the program receives its signals. Returns only if the program
    cannot be run."""
    try:
        os.execvp(words[0], words)
    except OSError as error:
        print(
            f"odradek: {words[0]} is not a command of odradek (`--help` lists them), and cannot be run as a program:"
            f" {error.strerror}",
            file=sys.stderr,
        )
    return SHELL_NOT_FOUND


def _read_secret(name: str) -> str:
    from odradek.tools.container.environment import SECRETS, SecretMissing

    path = Path(SECRETS) / name
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise SecretMissing(f"{path}: {error.strerror}; mount the folder that contains it at {SECRETS}") from None


def _cluster_id(directory: Path) -> str | None:
    from odradek.files.checkpoints import CorruptCheckpoint, decode_meta_properties
    from odradek.files.names import META_PROPERTIES

    try:
        return decode_meta_properties((directory / META_PROPERTIES).read_bytes()).cluster_id
    except (OSError, CorruptCheckpoint):
        return None  # the directory is new, or the broker will report the error
