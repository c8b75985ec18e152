"""The command line's entry point. `serve` has a separate parser, so that a broker starts without loading the other
commands' parsers."""

import gc
import sys
from collections.abc import Sequence

OBJECTS_OF_A_START = 100_000
HELP_WORDS = frozenset({"--help", "-h"})


def main(words: Sequence[str] | None = None) -> int:
    """Runs the command in `words` (by default, the process's arguments) and returns its exit status."""
    words = sys.argv[1:] if words is None else list(words)
    if words and words[0] == "serve" and not HELP_WORDS.intersection(words):
        from odradek.serve import main as serve

        return serve(words[1:])
    if words and words[0] == "health" and not HELP_WORDS.intersection(words):  # containers run this every few seconds
        from odradek.tools.container.health import main as health

        return health(words[1:])
    # Imports create many objects that live until the process exits. With the default threshold, the garbage collector
    # would spend a tenth of the start-up time scanning them.
    gc.set_threshold(OBJECTS_OF_A_START)
    from odradek.tools.commands.tree import run

    return run(words)
