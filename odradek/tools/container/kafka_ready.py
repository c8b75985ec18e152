"""Implements `cub kafka-ready` from Confluent's images, which waits until a broker responds. Start-up jobs run this
command before they create topics.

    cub kafka-ready -b HOST:PORT[,…] [-c CONFIG] BROKERS TIMEOUT_S
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from odradek.tools.container.kafka_tools import Unsupported

USAGE = "usage: cub kafka-ready -b HOST:PORT[,…] [-c CONFIG] BROKERS TIMEOUT_S"


def translated(words: Sequence[str]) -> list[str]:
    """Returns the arguments of the `odradek` command that waits for a broker in the same way. Raises Unsupported."""
    options: list[str] = []
    numbers: list[str] = []
    rest = list(words)
    if not rest or rest.pop(0) != "kafka-ready":
        raise Unsupported(f"only kafka-ready is supported here; {USAGE}")
    while rest:
        match rest:
            case ["-b" | "--bootstrap-servers", value, *rest]:
                options += ["-b", value]
            case ["-c" | "--config", value, *rest]:
                options += ["--command-config", value]
            case [number, *rest] if number.isdecimal():
                numbers.append(number)
            case [word, *_]:
                raise Unsupported(f"{word} is not supported here; {USAGE}")
    match numbers:
        case ["1", timeout_s] if options:
            return ["cluster", "cluster-id", *options, "--timeout", timeout_s]
        case [_, _] if options:
            raise Unsupported("this cluster has one broker, so BROKERS must be 1")
        case _:
            raise Unsupported(USAGE)


def main() -> int:
    try:
        command = translated(sys.argv[1:])
    except Unsupported as why:
        print(f"cub: {why}", file=sys.stderr)
        return 1
    from odradek.tools.commands.tree import run

    return run(command)


if __name__ == "__main__":
    raise SystemExit(main())
