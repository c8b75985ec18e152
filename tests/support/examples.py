"""Sets the number of examples that Hypothesis tries for each property: the same few in every run, or, with EXAMPLES=n,
n times as many new examples."""

import os

FACTOR = int(os.environ.get("EXAMPLES", "1"))
ARE_THE_SAME = FACTOR == 1


def examples(usually: int) -> int:
    return usually * FACTOR
