"""Sets the number of examples that Hypothesis tries for each property. By default, every run tries the same few
examples. If EXAMPLES=n is set and n > 1, a run tries new examples, n times as many."""

import os

FACTOR = int(os.environ.get("EXAMPLES", "1"))
ARE_THE_SAME = FACTOR == 1


def examples(usually: int) -> int:
    return usually * FACTOR
