"""Sets the number of examples that Hypothesis tries for each property. By default, every run tries the same few
examples. With EXAMPLES=n for n > 1, a run tries n times as many new examples."""

import os

FACTOR = int(os.environ.get("EXAMPLES", "1"))
ARE_THE_SAME = FACTOR == 1


def examples(usually: int) -> int:
    return usually * FACTOR
