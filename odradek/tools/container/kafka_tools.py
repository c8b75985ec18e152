"""Provides Kafka's scripts under their own names by translating their options to `odradek` commands. The translations
support health checks, init containers and start-up jobs written for the Apache, Confluent and Bitnami images.

`TOOLS` has a row for each action of each script, with the options that the action accepts. Any other option is rejected
with a message that names the option and refers to this image's commands. Only `run_script` has side effects.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

# The connection options that every script accepts, with their names in `odradek`.
CONNECTION: Mapping[str, str] = {
    "--bootstrap-server": "-b",
    "--broker-list": "-b",
    "--command-config": "--command-config",
    "--producer.config": "--command-config",
    "--consumer.config": "--command-config",
}
SECURITY_PREFIXES = ("security.", "sasl.", "ssl.")
MS_PER_S = 1000


class Unsupported(Exception):
    """The image has no command that corresponds to these script options."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One `odradek` command: its arguments, and its standard input if that differs from the script's."""

    words: list[str]
    stdin: str | None = None


@dataclass(slots=True)
class ToolOptions:
    """A script's options with their values. An option that takes no value has an empty value."""

    options: dict[str, list[str]] = field(default_factory=dict)

    def has(self, option: str) -> bool:
        return option in self.options

    def last(self, option: str) -> str | None:
        return self.options[option][-1] if option in self.options else None

    def all(self, *options: str) -> list[str]:
        return [value for option in options for value in self.options.get(option, ())]

    def pairs(self, *options: str) -> dict[str, str]:
        """Returns the values of repeated options that have the form name=value."""
        return dict(value.partition("=")[::2] for value in self.all(*options))

    def values(self, names: Mapping[str, str]) -> list[str]:
        """Returns the `odradek` arguments for options with a value. `names` maps the names of the script's options to
        those of `odradek`."""
        return [word for name, ours in names.items() for value in self.all(name) for word in (ours, value)]

    def flags(self, *names: str) -> list[str]:
        """Returns the given options among `names`, which take no value and have the same name in `odradek`."""
        return [name for name in names if name in self.options]


Translate = Callable[[ToolOptions], "list[str] | Iterable[ToolCall]"]


@dataclass(frozen=True, slots=True)
class ToolAction:
    """A script's action.

    option     the option that selects the action; empty if the script has only one action
    flags      options without a value
    valued     options with a value
    translate  returns the arguments of one `odradek` command without the connection options, or several commands
    """

    option: str
    flags: frozenset[str]
    valued: frozenset[str]
    translate: Translate


def _action(option: str, flags: str, valued: str, translate: Translate) -> ToolAction:
    return ToolAction(option, frozenset(flags.split()), frozenset(valued.split()), translate)


def _topics(options: ToolOptions) -> list[str]:
    return [name for names in options.all("--topic") for name in names.split(",")]


def list_topics(options: ToolOptions) -> list[str]:
    return ["topics", "list", *([] if options.has("--exclude-internal") else ["--internal"]), *_topics(options)]


def create_topics(options: ToolOptions) -> list[str]:
    given = {name: name for name in ("--partitions", "--replication-factor", "--config")}
    return ["topics", "create", *_topics(options), *options.values(given), *options.flags("--if-not-exists")]


def describe_topics(options: ToolOptions) -> list[str]:
    return ["topics", "describe", *_topics(options)]


def alter_topics(options: ToolOptions) -> list[str]:
    return ["topics", "alter", *_topics(options), *options.values({"--partitions": "--partitions"})]


def delete_topics(options: ToolOptions) -> list[str]:
    return ["topics", "delete", *_topics(options), *options.flags("--if-exists")]


def cluster(options: ToolOptions) -> list[str]:
    return ["cluster", "describe"]


def list_groups(options: ToolOptions) -> list[str]:
    return ["groups", "list"]


def _groups(options: ToolOptions) -> list[str]:
    if not options.has("--group") and not options.has("--all-groups"):
        raise Unsupported("give --group")
    return options.all("--group")


def describe_groups(options: ToolOptions) -> list[str]:
    return ["groups", "describe", *_groups(options), *options.flags("--members", "--state")]


def delete_groups(options: ToolOptions) -> list[str]:
    return ["groups", "delete", *_groups(options)]


def reset_offsets(options: ToolOptions) -> Iterator[ToolCall]:
    valued = {
        "--topic": "-t",
        "--to-datetime": "--to-datetime",
        "--to-offset": "--to-offset",
        "--shift-by": "--shift-by",
    }
    flags = options.flags("--to-earliest", "--to-latest", "--to-current", "--all-topics", "--execute", "--dry-run")
    for group in _groups(options):
        yield ToolCall(["groups", "reset-offsets", group, *options.values(valued), *flags])


def console_producer(options: ToolOptions) -> list[str]:
    words = ["produce", *options.values({"--topic": "-t", "--request-required-acks": "--acks"})]
    words += options.values({"--compression-codec": "-z"})
    reading = _select(options.pairs("--property", "--reader-property"), ("parse.key", "key.separator"))
    if reading.get("parse.key") == "true":
        words += ["-K", reading.get("key.separator", "\\t")]
    client = options.pairs("--producer-property", "--command-property")
    ours = {"acks": "--acks", "compression.type": "-z"}
    return words + [word for name, value in client.items() for word in _client_property(name, value, ours)]


# A record's parts in the order in which kafka-console-consumer prints them, as formats for `odradek consume -f`.
PRINTED: Mapping[str, str] = {
    "print.timestamp": "CreateTime:%T",
    "print.partition": "Partition:%p",
    "print.offset": "Offset:%o",
    "print.headers": "%h",
    "print.key": "%k",
    "print.value": "%s",
}
NAMED_OFFSETS: Mapping[str, str] = {"earliest": "beginning", "latest": "end"}


def console_consumer(options: ToolOptions) -> list[str]:
    words = ["consume", *options.values({"--topic": "-t", "--partition": "-p", "--max-messages": "-c"})]
    client = options.pairs("--consumer-property", "--command-property")
    group = options.last("--group") or client.pop("group.id", None)
    isolation = options.last("--isolation-level") or client.pop(
        "isolation.level", "read_uncommitted"
    )  # Kafka's default
    reset = client.pop("auto.offset.reset", "latest")
    words += [] if group is None else ["-G", group]
    words += ["--isolation-level", isolation]
    words += ["-e"] if options.has("--timeout-ms") else []
    if options.has("--from-beginning") or (reset == "earliest" and not options.has("--offset")):
        words += ["-o", "beginning"]
    elif group is None:
        offset = options.last("--offset") or "latest"
        words += ["-o", NAMED_OFFSETS.get(offset, offset)]
    shown = _select(options.pairs("--property", "--formatter-property"), (*PRINTED, "key.separator"))
    separator = shown.pop("key.separator", "\\t")
    parts = [text for name, text in PRINTED.items() if shown.get(name, str(name == "print.value")).lower() == "true"]
    if parts == [PRINTED["print.key"], PRINTED["print.value"]]:
        words += ["-K", separator]
    elif parts != [PRINTED["print.value"]]:
        words += ["-f", separator.join(parts) + "\\n"]
    return words + [word for name, value in client.items() for word in _client_property(name, value, {})]


def _select(given: dict[str, str], allowed: Iterable[str]) -> dict[str, str]:
    for name in given:
        if name not in allowed:
            raise Unsupported(f"the property {name} is not supported here")
    return given


def _client_property(name: str, value: str, ours: Mapping[str, str]) -> list[str]:
    if name in ours:
        return [ours[name], value]
    if name.startswith(SECURITY_PREFIXES):
        return ["-X", f"{name}={value}"]
    if name == "client.id":
        return []
    raise Unsupported(f"the property {name} is not supported here")


# For each kind of entity, the kafka-configs option that names an entity. `odradek quotas` changes the entities in
# LIMITED, and `odradek configs` changes all others.
CONFIGURED: Mapping[str, str] = {
    "topics": "--topic",
    "brokers": "--broker",
    "broker-loggers": "--broker-logger",
    "groups": "--group",
    "client-metrics": "--client-metrics",
}
LIMITED: Mapping[str, str] = {"users": "--user", "clients": "--client", "ips": "--ip"}
DEFAULTS: Mapping[str, str] = {
    f"{option}-defaults": kind for kind, option in {**LIMITED, "brokers": "--broker"}.items()
}
SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")
ENTITY_OPTIONS = " ".join(("--entity-type --entity-name", *CONFIGURED.values(), *LIMITED.values()))
ENTITY_FLAGS = " ".join(("--entity-default", *DEFAULTS))


@dataclass(frozen=True, slots=True)
class Entity:
    """An entity that kafka-configs describes or alters. If `name` is None, the entity is the default for its kind."""

    kind: str
    name: str | None


def entities(options: ToolOptions) -> list[Entity]:
    short = {option: kind for kind, option in (*CONFIGURED.items(), *LIMITED.items())}
    found = [Entity(kind, options.last(option)) for option, kind in short.items() if options.has(option)]
    found += [Entity(kind, None) for option, kind in DEFAULTS.items() if options.has(option)]
    kinds, named = options.all("--entity-type"), options.all("--entity-name")
    if len(named) + options.has("--entity-default") != len(kinds):
        raise Unsupported("each --entity-type needs an --entity-name or --entity-default")
    for index, kind in enumerate(kinds):
        if kind not in CONFIGURED and kind not in LIMITED:
            raise Unsupported(f"--entity-type {kind} is not supported here")
        found.append(Entity(kind, named[index] if index < len(named) else None))
    if not found:
        raise Unsupported("nothing is selected: give --entity-type with --entity-name, or an option such as --topic")
    return found


def _entity_words(of: Iterable[Entity]) -> list[str]:
    words = []
    for entity in of:
        option = {**CONFIGURED, **LIMITED}[entity.kind]
        words += [f"{option}-defaults"] if entity.name is None else [option, entity.name]
    return words


def describe_configs(options: ToolOptions) -> list[str]:
    of = entities(options)
    if of[0].kind in LIMITED:
        return ["quotas", "list", *_entity_words(of)]
    return ["configs", "describe", *_entity_words(of), *options.flags("--all")]


def alter_configs(options: ToolOptions) -> Iterator[ToolCall]:
    of = entities(options)
    if not options.has("--add-config") and not options.has("--delete-config"):
        raise Unsupported("no change is given: give --add-config or --delete-config")
    if of[0].kind not in LIMITED:
        words = options.values({"--add-config": "--add-config", "--delete-config": "--delete-config"})
        yield ToolCall(["configs", "alter", *_entity_words(of), *words])
        return
    quotas = []
    for name, value in _settings(options.last("--add-config") or ""):
        if name not in SCRAM:
            quotas.append(f"{name}={value}")
            continue
        fields = dict(part.strip().partition("=")[::2] for part in value.split(","))
        if "password" not in fields or fields.keys() - {"password", "iterations"}:
            raise Unsupported(f"{name}=[…] must contain a password, and may contain iterations")
        iterations = ["--iterations", fields["iterations"]] if "iterations" in fields else []
        words = ["users", "set-password", _user(of), "--mechanism", name, *iterations, "--password-file", "-"]
        yield ToolCall(words, stdin=fields["password"] + "\n")
    if quotas:
        yield ToolCall(["quotas", "set", *_entity_words(of), *quotas])
    removed = [name.strip() for name in (options.last("--delete-config") or "").split(",") if name.strip()]
    for mechanism in (name for name in removed if name in SCRAM):
        yield ToolCall(["users", "delete-password", _user(of), "--mechanism", mechanism])
    if others := [name for name in removed if name not in SCRAM]:
        yield ToolCall(["quotas", "unset", *_entity_words(of), *others])


def _user(of: Sequence[Entity]) -> str:
    match of:
        case [Entity(kind="users", name=str(name))]:
            return name
        case _:
            raise Unsupported("a SCRAM password belongs to one user: give --entity-type users --entity-name NAME")


def _settings(text: str) -> Iterator[tuple[str, str]]:
    """Splits a text such as `a=1,b=[c,d]` at the commas outside brackets. Raises Unsupported."""
    for part in re.findall(r"[^,\[]+(?:\[[^\]]*\])?", text):
        name, separator, value = part.strip().partition("=")
        if not separator:
            raise Unsupported(f"--add-config {part.strip()}: write NAME=VALUE")
        yield name, value.removeprefix("[").removesuffix("]")


ACL_RESOURCES = "--topic --group --transactional-id --delegation-token --user-principal --resource-pattern-type"
ACL_PRINCIPALS = "--allow-principal --deny-principal --allow-host --deny-host --operation"


def acls(action: str, flags: str, valued: str) -> ToolAction:
    """Returns a kafka-acls action. Its options have the same names in `odradek acls`, which never asks for
    confirmation."""

    def translate(options: ToolOptions) -> list[str]:
        return [
            "acls",
            action,
            *options.values({name: name for name in valued.split()}),
            *options.flags(*flags.split()),
        ]

    return _action(f"--{action}", f"{flags} --force", valued, translate)


TOOLS: Mapping[str, tuple[ToolAction, ...]] = {
    "kafka-topics": (
        _action("--list", "--exclude-internal", "--topic", list_topics),
        _action("--create", "--if-not-exists", "--topic --partitions --replication-factor --config", create_topics),
        _action("--describe", "", "--topic", describe_topics),
        _action("--alter", "", "--topic --partitions", alter_topics),
        _action("--delete", "--if-exists", "--topic", delete_topics),
    ),
    "kafka-configs": (
        _action("--describe", f"--all {ENTITY_FLAGS}", ENTITY_OPTIONS, describe_configs),
        _action("--alter", ENTITY_FLAGS, f"--add-config --delete-config {ENTITY_OPTIONS}", alter_configs),
    ),
    "kafka-acls": (
        acls("list", "--cluster", f"{ACL_RESOURCES} --principal"),
        acls("add", "--cluster --producer --consumer --idempotent", f"{ACL_RESOURCES} {ACL_PRINCIPALS}"),
        acls("remove", "--cluster --producer --consumer --idempotent", f"{ACL_RESOURCES} {ACL_PRINCIPALS}"),
    ),
    "kafka-broker-api-versions": (_action("", "", "", cluster),),
    "kafka-cluster": (_action("", "", "", cluster),),
    "kafka-metadata-quorum": (_action("", "--status --replication", "", cluster),),
    "kafka-consumer-groups": (
        _action("--list", "", "--timeout", list_groups),
        _action("--describe", "--all-groups --members --state --offsets", "--group --timeout", describe_groups),
        _action("--delete", "", "--group --timeout", delete_groups),
        _action(
            "--reset-offsets",
            "--all-topics --to-earliest --to-latest --to-current --execute --dry-run",
            "--group --topic --to-datetime --to-offset --shift-by --timeout",
            reset_offsets,
        ),
    ),
    "kafka-console-producer": (
        _action(
            "",
            "--sync",
            "--topic --property --reader-property --producer-property --command-property --request-required-acks"
            " --compression-codec",
            console_producer,
        ),
    ),
    "kafka-console-consumer": (
        _action(
            "",
            "--from-beginning",
            "--topic --partition --group --max-messages --isolation-level --offset --timeout-ms"
            " --property --formatter-property --consumer-property --command-property",
            console_consumer,
        ),
    ),
}
TOOLS_WITH_ACTIONS = frozenset({"kafka-cluster", "kafka-metadata-quorum"})


def translated(tool: str, words: Sequence[str]) -> list[ToolCall]:
    """Returns the `odradek` calls that are equivalent to Kafka's script `tool` with the arguments `words`. Raises
    Unsupported."""
    actions = TOOLS[tool]
    named = {action.option for action in actions} - {""}
    flags = {flag for action in actions for flag in action.flags} | named
    valued = {option for action in actions for option in action.valued} | CONNECTION.keys()
    options = ToolOptions()
    waiting = list(words)
    while waiting:
        option, separator, value = waiting.pop(0).partition("=")
        if not option.startswith("--") and tool in TOOLS_WITH_ACTIONS:
            continue  # an action such as `describe` or `cluster-id`; they all produce the same output here
        if option in flags:
            options.options.setdefault(option, []).append("")
        elif option in valued:
            if not separator and not waiting:
                raise Unsupported(f"{option} needs a value")
            options.options.setdefault(option, []).append(value if separator else waiting.pop(0))
        else:
            raise Unsupported(f"{option} is not supported here")
    action = _choose_action(actions, options)
    for option in options.options.keys() - {action.option} - CONNECTION.keys():
        if option not in action.flags and option not in action.valued:
            raise Unsupported(f"{option} is not supported with {action.option}")
    found = action.translate(options)
    calls = [ToolCall(found)] if isinstance(found, list) else list(found)
    connection = options.values(CONNECTION)
    if (timeout_ms := options.last("--timeout")) is not None:
        if not timeout_ms.isdecimal():
            raise Unsupported(f"--timeout {timeout_ms}: write a number of milliseconds")
        connection += ["--timeout", str(max(1, int(timeout_ms) // MS_PER_S))]
    return [ToolCall([*call.words, *connection], call.stdin) for call in calls]


def _choose_action(actions: Sequence[ToolAction], options: ToolOptions) -> ToolAction:
    chosen = [action for action in actions if not action.option or options.has(action.option)]
    if len(chosen) != 1:
        raise Unsupported(f"give one of {', '.join(action.option for action in actions)}")
    return chosen[0]


def run_script(tool: str, words: Sequence[str]) -> int:
    """Runs the `odradek` calls that are equivalent to Kafka's script `tool` with the arguments `words`. Returns the
    exit status of the first command that fails, or 0 if none fails."""
    try:
        calls = translated(tool, words)
    except Unsupported as why:
        print(f"{tool}: {why}; the commands of this image are those of `odradek --help`", file=sys.stderr)
        return 1
    from io import StringIO

    from odradek.tools.commands.tree import run

    for call in calls:
        if call.stdin is not None:
            sys.stdin = StringIO(call.stdin)
        status = run(call.words)
        if status:
            return status
    return 0


if __name__ == "__main__":
    raise SystemExit(run_script(sys.argv[1], sys.argv[2:]))
