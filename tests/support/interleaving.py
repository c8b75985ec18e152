"""Runs several threads step by step. A seed determines which thread takes the next step."""

import threading
from collections.abc import Callable, Sequence
from random import Random

# If a step takes longer than this, its thread is probably waiting for a lock, and another thread takes the next step.
BLOCKED_AFTER_S = 0.05
PATIENCE_S = 60.0


class Actor:
    """A thread that waits for its turn at each `step()`."""

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
        """Waits for the thread's turn. `before` names the thread's next action."""
        self.before = before
        self._waiting.set()
        assert self._turn.acquire(timeout=PATIENCE_S), f"{self.name} never came to its turn"

    def is_waiting(self, timeout_s: float) -> bool:
        return self._waiting.wait(timeout_s)

    def move(self) -> None:
        self._waiting.clear()
        self._turn.release()

    def move_until(self, before: object) -> None:
        """Lets the thread run up to the step that `before` names, or to its end."""
        while self.is_waiting(PATIENCE_S) and not self.is_over and self.before != before:
            self.move()

    def _run(self) -> None:
        try:
            self.step()
            self._play(self)
        except BaseException as error:
            self.failure = error
        self.is_over = True  # set first, so that the thread does not count as waiting
        self._waiting.set()


def interleave(actors: Sequence[Actor], rng: Random) -> None:
    """Runs all actors to completion. Raises any unexpected exception from an actor.

    Each actor takes several steps in a row, and the seed determines how many. Long runs are important, because most
    errors appear when one actor completes recoveries and transactions while another is paused.
    """
    stays = rng.uniform(0.5, 0.98)
    chosen: Actor | None = None
    while moving := [actor for actor in actors if not actor.is_over]:
        ready = [actor for actor in moving if actor.is_waiting(0)]
        if not ready:  # Every actor is in the middle of a step or is waiting for a lock.
            moving[0].is_waiting(BLOCKED_AFTER_S)
            continue
        if chosen not in ready or rng.random() > stays:
            chosen = rng.choice(ready)
        chosen.move()
        chosen.is_waiting(BLOCKED_AFTER_S)
    for actor in actors:
        if actor.failure is not None:
            raise actor.failure
