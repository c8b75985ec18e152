"""Several threads that advance one step at a time, in an order that a seed decides."""

import threading
from collections.abc import Callable, Sequence
from random import Random

BLOCKED_AFTER_S = 0.05  # a step that has not ended by then waits for a lock, most likely: let another one move
PATIENCE_S = 60.0


class Actor:
    """A thread that waits at each `step()` for its turn."""

    def __init__(self, name: str, play: "Callable[[Actor], None]") -> None:
        self.name = name
        self.is_over = False
        self.before: object = None
        self.failure: BaseException | None = None
        self._play = play
        self._turn = threading.Semaphore(0)
        self._waiting = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def step(self, before: object = None) -> None:
        """Wait for the turn to do what comes next, which is called `before`."""
        self.before = before
        self._waiting.set()
        assert self._turn.acquire(timeout=PATIENCE_S), f"{self.name} never came to its turn"

    def is_waiting(self, timeout_s: float) -> bool:
        return self._waiting.wait(timeout_s)

    def move(self) -> None:
        self._waiting.clear()
        self._turn.release()

    def move_until(self, before: object) -> None:
        """Up to that step, or to the end."""
        while self.is_waiting(PATIENCE_S) and not self.is_over and self.before != before:
            self.move()

    def _run(self) -> None:
        try:
            self.step()
            self._play(self)
        except BaseException as error:
            self.failure = error
        self.is_over = True  # before anybody can take it for one that waits
        self._waiting.set()


def interleave(actors: Sequence[Actor], rng: Random) -> None:
    """Until all are over. Raises what an actor did not expect.

    Each moves several steps in a row, fewer or more by the seed: it is whole recoveries and transactions of one, while
    the other sleeps, that bring out what is wrong.
    """
    stays = rng.uniform(0.5, 0.98)
    chosen: Actor | None = None
    while moving := [actor for actor in actors if not actor.is_over]:
        ready = [actor for actor in moving if actor.is_waiting(0)]
        if not ready:  # the one holds what the other waits for, until a time limit lets it go on
            moving[0].is_waiting(BLOCKED_AFTER_S)
            continue
        if chosen not in ready or rng.random() > stays:
            chosen = rng.choice(ready)
        chosen.move()
        chosen.is_waiting(BLOCKED_AFTER_S)
    for actor in actors:
        if actor.failure is not None:
            raise actor.failure
