"""The command line. `serve` bypasses the parser of all other commands."""

import sys
from collections.abc import Sequence

HELP_WORDS = frozenset({"--help", "-h"})


def main(words: Sequence[str] | None = None) -> int:
    """Runs one command; returns the exit status."""
    words = sys.argv[1:] if words is None else list(words)
    if words and words[0] == "serve" and not HELP_WORDS.intersection(words):
        from odradek.serve import main as serve

        return serve(words[1:])
    from odradek.commands.tree import run

    return run(words)
