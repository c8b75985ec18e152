"""Parses topics in short form, from the option `--topic` and the variable `KAFKA_CREATE_TOPICS` of older images."""

from __future__ import annotations

from collections.abc import Mapping

from odradek.seeds.plan import DEFAULT, Place, SeedTopic

VARIABLE = "KAFKA_CREATE_TOPICS"
SEPARATOR_VARIABLE = "KAFKA_CREATE_TOPICS_SEPARATOR"


def topic_of_option(text: str) -> SeedTopic:
    """Parses NAME[:PARTITIONS][:SETTING=VALUE]…, for example orders:6:cleanup.policy=compact. Raises SeedError."""
    place = Place(f"--topic {text}")
    name, *rest = text.split(":")
    if not name:
        raise place.error("the name is missing; write NAME[:PARTITIONS][:SETTING=VALUE]…")
    partitions = DEFAULT
    if rest and "=" not in rest[0]:
        partitions = _number(rest.pop(0), place, "the number of partitions")
    settings: dict[str, str] = {}
    for each in rest:
        setting, separator, value = each.partition("=")
        if not separator or not setting:
            raise place.error(f"{each!r} must have the form SETTING=VALUE, for example cleanup.policy=compact")
        if setting in settings:
            raise place.error(f"{setting} is given twice")
        settings[setting] = value
    return SeedTopic(name, partitions, settings=tuple(settings.items()), place=place)


def topics_of_environment(environ: Mapping[str, str]) -> tuple[SeedTopic, ...]:
    """Parses NAME:PARTITIONS:REPLICAS[:CLEANUP_POLICY]. Several topics are separated by commas. Raises SeedError.

    KAFKA_CREATE_TOPICS_SEPARATOR replaces the comma. Its value can be quoted as in bash, such as $'\\n'.
    """
    given = environ.get(VARIABLE, "")
    separator = environ.get(SEPARATOR_VARIABLE) or ","
    if separator.startswith("$'") and separator.endswith("'"):
        separator = separator[2:-1].replace("\\n", "\n").replace("\\t", "\t")
    topics = []
    for text in given.split(separator):
        word = text.strip()
        if not word:
            continue
        place = Place(f"{VARIABLE}, {word}")
        name, *rest = [part.strip() for part in word.split(":")]
        if not name or not 2 <= len(rest) <= 3:
            raise place.error("write NAME:PARTITIONS:REPLICAS or NAME:PARTITIONS:REPLICAS:CLEANUP_POLICY")
        partitions = _number(rest[0], place, "the number of partitions")
        replicas = _number(rest[1], place, "the number of replicas")
        settings = (("cleanup.policy", rest[2]),) if len(rest) == 3 and rest[2] else ()
        topics.append(SeedTopic(name, partitions, replicas, settings, place=place))
    return tuple(topics)


def _number(text: str, place: Place, meaning: str) -> int:
    if not (text.isascii() and text.isdecimal()) or not 1 <= int(text) <= 2**31 - 1:
        raise place.error(f"{meaning} must be a whole number of at least 1, not {text!r}")
    return int(text)
