"""How many examples Hypothesis tries of a property: in each run the same few, or EXAMPLES=n times as many new ones."""

import os

FACTOR = int(os.environ.get("EXAMPLES", "1"))
ARE_THE_SAME = FACTOR == 1


def examples(usually: int) -> int:
    return usually * FACTOR
