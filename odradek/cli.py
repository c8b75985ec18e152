"""The command line. `serve` bypasses the parser of all other commands."""

import gc
import sys
from collections.abc import Sequence

OBJECTS_OF_A_START = 100_000
HELP_WORDS = frozenset({"--help", "-h"})


def main(words: Sequence[str] | None = None) -> int:
    """Runs one command; returns the exit status."""
    words = sys.argv[1:] if words is None else list(words)
    if words and words[0] == "serve" and not HELP_WORDS.intersection(words):
        from odradek.serve import main as serve

        return serve(words[1:])
    # Imports make many objects that live to the end: to look for garbage among them takes a tenth of a start.
    gc.set_threshold(OBJECTS_OF_A_START)
    from odradek.tools.commands.tree import run

    return run(words)
