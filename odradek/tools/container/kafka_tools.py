"""Offers Kafka's scripts under their own names, for health checks and start-up jobs written for the apache/kafka image:
translates their options to commands of `odradek`.

Pure functions, except `main`. Only options that such jobs use are supported. Others are refused, with a hint at the
command to use instead.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

BOOTSTRAP = ("--bootstrap-server", "--broker-list")


class Unsupported(Exception):
    """The script's options have no counterpart among the commands of this image."""


@dataclass(slots=True)
class ToolOptions:
    """The options of a script, with their values. Options that take no value have an empty one."""

    options: dict[str, list[str]] = field(default_factory=dict)

    def has(self, option: str) -> bool:
        return option in self.options

    def last(self, option: str) -> str | None:
        return self.options[option][-1] if option in self.options else None

    def pairs(self, option: str) -> dict[str, str]:
        """Returns the values of a repeated option of the form name=value."""
        return dict(value.partition("=")[::2] for value in self.options.get(option, ()))


@dataclass(frozen=True, slots=True)
class Tool:
    """A script. `flags` take no value, `valued` options take one. `translate` returns the arguments of `odradek`,
    without those for the connection."""

    flags: frozenset[str]
    valued: frozenset[str]
    translate: Callable[[ToolOptions], list[str]]


def topics(asked: ToolOptions) -> list[str]:
    names = [name for names in asked.options.get("--topic", ()) for name in names.split(",")]
    if asked.has("--list"):
        return ["topics", "list", *([] if asked.has("--exclude-internal") else ["--internal"])]
    if asked.has("--create"):
        words = ["topics", "create", *names]
        for option in ("--partitions", "--replication-factor"):
            words += _valued(asked, option, option)
        for setting in asked.options.get("--config", ()):
            words += ["--config", setting]
        return words + _flag(asked, "--if-not-exists")
    if asked.has("--describe"):
        return ["topics", "describe", *names]
    if asked.has("--alter"):
        return ["topics", "alter", *names, *_valued(asked, "--partitions", "--partitions")]
    if asked.has("--delete"):
        return ["topics", "delete", *names, *_flag(asked, "--if-exists")]
    raise Unsupported("give one of --list, --create, --describe, --alter, --delete")


def cluster(asked: ToolOptions) -> list[str]:
    return ["cluster", "describe"]


def groups(asked: ToolOptions) -> list[str]:
    if asked.has("--list"):
        return ["groups", "list"]
    named = asked.options.get("--group", [])
    if asked.has("--describe") and named:
        return ["groups", "describe", *named]
    if asked.has("--delete") and named:
        return ["groups", "delete", *named]
    raise Unsupported("give --list, or --describe or --delete with --group; for more see `odradek groups --help`")


def console_producer(asked: ToolOptions) -> list[str]:
    words = ["produce", *_valued(asked, "--topic", "-t")]
    properties = asked.pairs("--property")
    if properties.get("parse.key") == "true":
        words += ["-K", properties.get("key.separator", "\\t")]
    return words


def console_consumer(asked: ToolOptions) -> list[str]:
    words = ["consume", *_valued(asked, "--topic", "-t"), *_valued(asked, "--partition", "-p")]
    words += _valued(asked, "--group", "-G") + _valued(asked, "--max-messages", "-c")
    words += ["--isolation-level", asked.last("--isolation-level") or "read_uncommitted"]  # Kafka's default
    words += ["-e"] if asked.has("--timeout-ms") else []
    if asked.has("--from-beginning"):
        words += ["-o", "beginning"]
    elif not asked.has("--group"):
        words += ["-o", asked.last("--offset") or "end"]
    properties = asked.pairs("--property")
    if properties.get("print.key") == "true":
        words += ["-K", properties.get("key.separator", "\\t")]
    return words


def _tool(flags: str, valued: str, translate: Callable[[ToolOptions], list[str]]) -> Tool:
    return Tool(frozenset(flags.split()), frozenset(valued.split()), translate)


TOOLS: Mapping[str, Tool] = {
    "kafka-topics": _tool(
        "--list --create --describe --alter --delete --if-not-exists --if-exists --exclude-internal",
        "--topic --partitions --replication-factor --config",
        topics,
    ),
    "kafka-broker-api-versions": _tool("", "", cluster),
    "kafka-cluster": _tool("", "", cluster),
    "kafka-metadata-quorum": _tool("--status --replication", "", cluster),
    "kafka-consumer-groups": _tool("--list --describe --delete", "--group", groups),
    "kafka-console-producer": _tool("", "--topic --property", console_producer),
    "kafka-console-consumer": _tool(
        "--from-beginning",
        "--topic --partition --group --max-messages --isolation-level --offset --property --timeout-ms",
        console_consumer,
    ),
}
TAKES_AN_ACTION = frozenset({"kafka-cluster", "kafka-metadata-quorum"})


def translated(tool: str, words: Sequence[str]) -> list[str]:
    """Returns the arguments for `odradek` that do what Kafka's script `tool` does with `words`. Raises Unsupported."""
    known = TOOLS[tool]
    asked = ToolOptions()
    waiting = list(words)
    while waiting:
        option, separator, value = waiting.pop(0).partition("=")
        if not option.startswith("--") and tool in TAKES_AN_ACTION:
            continue  # an action such as `describe` or `cluster-id`; the output includes all of them
        if option in known.flags:
            asked.options.setdefault(option, []).append("")
        elif option in known.valued or option in BOOTSTRAP:
            if not separator and not waiting:
                raise Unsupported(f"{option} needs a value")
            asked.options.setdefault(option, []).append(value if separator else waiting.pop(0))
        else:
            raise Unsupported(f"{option} is not supported here")
    command = known.translate(asked)
    for option in BOOTSTRAP:
        command += _valued(asked, option, "-b")
    return command


def _valued(asked: ToolOptions, option: str, ours: str) -> list[str]:
    value = asked.last(option)
    return [] if value is None else [ours, value]


def _flag(asked: ToolOptions, option: str) -> list[str]:
    return [option] if asked.has(option) else []


def main() -> int:
    tool, *words = sys.argv[1:]
    try:
        command = translated(tool, words)
    except Unsupported as why:
        print(f"{tool}.sh: {why}; the commands of this image are those of `odradek --help`", file=sys.stderr)
        return 1
    from odradek.tools.commands.tree import run

    return run(command)


if __name__ == "__main__":
    raise SystemExit(main())
