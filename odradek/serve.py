"""Implements `odradek serve`, which reads the command line, runs the broker, and shuts it down cleanly.

To keep start-up fast, it imports only modules that the broker needs before it accepts the first connection.
"""

from __future__ import annotations

import gc
import logging
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from odradek.log_format import LOG_FORMATS, TEXT, UnknownLevel, set_up_logging
from odradek.system.processes import is_alive, milliseconds_since_start

if TYPE_CHECKING:
    from odradek.seeds.plan import SeedPlan

EPHEMERAL_PREFIX = "odradek-ephemeral-"
USAGE = (
    "usage: odradek serve [--config FILE] [--override NAME=VALUE]... [--data-dir DIR] [--port N] [--http-port N]"
    " [--schema-registry] [--topic NAME:PARTITIONS:SETTING=VALUE]... [--seed FILE] [--ready-file FILE]"
    " [--ephemeral] [--control] [--faults FILE] [--odd SEED] [--emulate RELEASE] [--record FILE]"
    " [--log-format text|json]"
    "   (odradek serve --help explains them)"
)

WITH_VALUE = frozenset(
    (
        *(
            "--config",
            "--override",
            "--data-dir",
            "--port",
            "--http-port",
            "--ready-file",
            "--faults",
            "--odd",
            "--emulate",
        ),
        *("--record", "--log-format", "--topic", "--seed"),
    )
)


HTTP_PORT = "--http-port {}: must be a number from 0 (any free port) to 65535, or -1 for no HTTP"


class UsageError(Exception):
    """Raised if the arguments of `serve` are invalid."""


@dataclass(frozen=True, slots=True)
class ServeOptions:
    config: Path | None = None
    overrides: tuple[str, ...] = ()
    data_dir: Path | None = None
    port: int | None = None
    http_port: int | None = None
    has_schema_registry: bool = False
    ready_file: Path | None = None
    is_ephemeral: bool = False
    is_controlled: bool = False
    faults: Path | None = None
    odd: int = 0
    emulate: str | None = None
    record: Path | None = None
    log_format: str = TEXT
    topics: tuple[str, ...] = ()
    seed: Path | None = None

    def settings(self) -> dict[str, str]:
        """Returns the settings from the command line, keyed by their Kafka names. Options for particular settings, such
        as `--port`, take precedence over `--override`. Raises UsageError."""
        settings = {}
        for text in self.overrides:
            name, separator, value = text.partition("=")
            if not separator or not name.strip():
                raise UsageError(
                    f"--override {text}: write the name and the value of a setting, as in num.partitions=3"
                )
            settings[name.strip()] = value.strip()
        if self.is_controlled or self.faults is not None or self.odd or self.emulate is not None:
            settings["odradek.control.enable"] = "true"
        if self.data_dir is not None:
            settings["log.dirs"] = str(self.data_dir)
        if self.port is not None:
            if not 0 <= self.port <= 65535:
                raise UsageError(f"--port {self.port}: must be a number from 0 (any free port) to 65535")
            settings["odradek.port"] = str(self.port)
        if self.http_port is not None:
            if not -1 <= self.http_port <= 65535:
                raise UsageError(HTTP_PORT.format(self.http_port))
            settings["odradek.http.port"] = str(self.http_port)
        if self.has_schema_registry:
            settings["odradek.schema.registry.enable"] = "true"
        return settings


def parse_options(words: Sequence[str]) -> ServeOptions:
    """Parses options in the forms `--name value` and `--name=value`. Raises UsageError."""
    options = ServeOptions()
    waiting = list(words)
    while waiting:
        name, separator, value = waiting.pop(0).partition("=")
        if name == "--ephemeral" and not separator:
            options = replace(options, is_ephemeral=True)
            continue
        if name == "--schema-registry" and not separator:
            options = replace(options, has_schema_registry=True)
            continue
        if name == "--control" and not separator:
            options = replace(options, is_controlled=True)
            continue
        if name not in WITH_VALUE:
            raise UsageError(f"{name} is not an option of serve{_similar_option(name)}")
        if not separator:
            if not waiting:
                raise UsageError(f"{name} needs a value")
            value = waiting.pop(0)
        match name:
            case "--config":
                options = replace(options, config=Path(value))
            case "--override":
                options = replace(options, overrides=(*options.overrides, value))
            case "--topic":
                options = replace(options, topics=(*options.topics, value))
            case "--seed":
                options = replace(options, seed=Path(value))
            case "--data-dir":
                options = replace(options, data_dir=Path(value))
            case "--ready-file":
                options = replace(options, ready_file=Path(value))
            case "--faults":
                options = replace(options, faults=Path(value))
            case "--odd":
                if not value.isdecimal():
                    raise UsageError(
                        f"--odd {value}: must be a number, which is the seed of the rare answers (0 for none)"
                    )
                options = replace(options, odd=int(value))
            case "--emulate":
                options = replace(options, emulate=value)
            case "--record":
                options = replace(options, record=Path(value))
            case "--log-format":
                if value not in LOG_FORMATS:
                    raise UsageError(f"--log-format {value}: must be {' or '.join(LOG_FORMATS)}")
                options = replace(options, log_format=value)
            case "--port":
                if not value.isdecimal():
                    raise UsageError(f"--port {value}: must be a number from 0 (any free port) to 65535")
                options = replace(options, port=int(value))
            case "--http-port":
                if not value.removeprefix("-").isdecimal():
                    raise UsageError(HTTP_PORT.format(value))
                options = replace(options, http_port=int(value))
    return options


def _similar_option(name: str) -> str:
    """Returns a question that suggests the known option most similar to `name`, or an empty string if no option is
    similar."""
    from difflib import get_close_matches  # imported here because only a mistyped option needs it

    known = [word.strip("[]") for word in USAGE.split() if word.startswith("[--")]
    found = get_close_matches(name, known, n=1)
    return f". Did you mean {found[0]}?" if found else ""


def seed_of(options: ServeOptions, environ: Mapping[str, str]) -> SeedPlan | None:
    """Returns the plan for the topics and other objects that the options and KAFKA_CREATE_TOPICS request, or None if
    they request nothing. Raises UsageError if the seed is invalid, and OSError if its file cannot be read."""
    if options.seed is None and not options.topics and not environ.get("KAFKA_CREATE_TOPICS"):
        return None
    # Imported here because most brokers have no seed.
    from odradek.seeds.document import parse_seed
    from odradek.seeds.plan import SeedError, SeedPlan
    from odradek.seeds.short_forms import topic_of_option, topics_of_environment

    try:
        plan = SeedPlan()
        if options.seed is not None:
            plan = parse_seed(options.seed.read_text(encoding="utf-8"), str(options.seed))
        plan = plan.with_topics(tuple(topic_of_option(text) for text in options.topics))
        return plan.with_topics(topics_of_environment(environ))
    except SeedError as error:
        raise UsageError(str(error)) from None
    except UnicodeDecodeError as error:
        raise UsageError(f"{options.seed}: the file is not UTF-8: {error.reason}") from None


def with_users(plan: SeedPlan | None, users: Sequence[tuple[str, str, str]]) -> SeedPlan:
    """Returns a plan that also creates users, each with a name, a password and a SCRAM mechanism."""
    from odradek.protocol.scram import MIN_ITERATIONS, SCRAM_MECHANISMS
    from odradek.seeds.plan import Place, SeedPlan, SeedUser

    added = (
        SeedUser(name, password, SCRAM_MECHANISMS[kind], MIN_ITERATIONS, Place(name)) for name, password, kind in users
    )
    plan = plan or SeedPlan()
    return replace(plan, users=(*plan.users, *added))


def main(words: Sequence[str]) -> int:
    try:
        options = parse_options(words)
    except UsageError as error:
        print(f"odradek serve: {error}\n{USAGE}", file=sys.stderr)
        return 2
    return run(options)


def run(
    options: ServeOptions,
    *,
    notes: Sequence[str] = (),
    warnings: Sequence[str] = (),
    ready_note: str | None = None,
    users: Sequence[tuple[str, str, str]] = (),
) -> int:
    """Runs the broker until it is stopped and returns the exit status.

    notes       messages to log once the configuration has been read
    warnings    messages to log like `notes`, but at WARNING level
    users       users to add to the seed, each with a name, a password and a SCRAM mechanism
    ready_note  text to print after the ready line; {node_id} is replaced by the broker's id
    """
    gc.disable()  # disabled until the broker accepts connections, because start-up creates no garbage
    from odradek.broker.configuration.config import BrokerConfig, ConfigError, load_config
    from odradek.broker.process import CannotStart, InitialControl, serve

    ephemeral: Path | None = None
    try:
        set_up_logging(sys.stderr, options.log_format, os.environ)
        settings = options.settings()
        seed = seed_of(options, os.environ)
        if users:
            seed = with_users(seed, users)
        if options.is_ephemeral:
            if options.data_dir is not None:
                raise UsageError("--ephemeral creates a temporary directory: leave out --data-dir")
            ephemeral = make_ephemeral_directory()
            settings["log.dirs"] = str(ephemeral)

        def load() -> tuple[BrokerConfig, tuple[str, ...]]:
            return load_config(options.config, os.environ, settings)

        config, doubts = load()
        if not {"log.dirs", "log.dir"} & config.given_settings.keys():
            settings["log.dirs"] = str(default_data_directory(os.environ))
            config, doubts = load()
        control = InitialControl(options.faults, options.odd, options.emulate)
        release = control.release()
        if release is not None:
            others = {name: value for name, value in release.defaults.items() if name not in config.given_settings}
            settings.update(others)
            config, doubts = load()
        for warning in (*warnings, *doubts):
            logging.getLogger("odradek").warning("%s", warning)
        for note in notes:
            logging.getLogger("odradek").info("%s", note)
        return serve(config, options.ready_file, milliseconds_since_start, ready_note, options.record, control, seed)
    except UsageError as error:
        print(f"odradek serve: {error}\n{USAGE}", file=sys.stderr)
        return 2
    except (ConfigError, CannotStart, UnknownLevel, OSError) as error:
        print(f"odradek serve: {error}", file=sys.stderr)
        return 1
    finally:
        if ephemeral is not None:
            remove_directory(ephemeral)


def default_data_directory(environ: Mapping[str, str]) -> Path:
    """Returns the default data directory, which does not depend on the working directory and survives a reboot."""
    home = (
        environ.get("XDG_DATA_HOME")
        or environ.get("LOCALAPPDATA")  # on Windows
        or os.path.join(os.path.expanduser("~"), ".local", "share")
    )
    return Path(home) / "odradek"


def make_ephemeral_directory() -> Path:
    """Creates a new directory whose name contains this process's id, and removes the directories of processes that were
    killed."""
    import tempfile

    for left in Path(tempfile.gettempdir()).glob(f"{EPHEMERAL_PREFIX}*"):
        pid = left.name.removeprefix(EPHEMERAL_PREFIX).partition("-")[0]
        if pid.isdecimal() and not is_alive(int(pid)):
            remove_directory(left)
    return Path(tempfile.mkdtemp(prefix=f"{EPHEMERAL_PREFIX}{os.getpid()}-"))


def remove_directory(path: Path) -> None:
    import shutil

    shutil.rmtree(path, ignore_errors=True)
