"""Finds the topics that match regular expressions (KIP-848), in slices, and caches the result of each expression.

A client chooses the expression, and every topic name must be compared with it. To limit the cost, the broker handles
other requests during a search, groups that use the same expression share one search, and later searches compare only
the names of new topics. Each turn of the loop runs one slice of one search, however many groups are waiting, and the
number of searches in progress is limited. An expression that needs far more work than usual is rejected (MAX_WORK).
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Collection, Iterator
from typing import Final, NamedTuple

from odradek.broker.groups.common.registry import FoundTopics
from odradek.broker.patterns.re2 import InvalidPattern, Pattern, check
from odradek.broker.runtime.slices import Steps, work_in_slices
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.quoting import MAX_QUOTED_LENGTH, quoted, shortened

logger = logging.getLogger(__name__)

MAX_WORK: Final = 30_000_000  # maximum work units of a pattern per search; about ten seconds of CPU time
# Number of steps that a search runs before the next search gets its turn. Together, the steps take a few milliseconds.
STEPS_PER_ROUND: Final = 150
MAX_RUNNING_SEARCHES: Final = 16  # maximum number of searches in progress; a search for a large pattern can use 6 MiB
NAMES_PER_STEP: Final = 20
MAX_EXPRESSIONS: Final = 1_000  # maximum number of expressions in the cache
MAX_NAMES: Final = 1_000_000  # maximum total number of topic names in the cache


class TopicNames(NamedTuple):
    """The names of all topics at one version of the cluster metadata."""

    version: int
    names: frozenset[str]


class SearchResult(NamedTuple):
    """The result of a search.

    searched  the topics that were compared
    matching  the topics that match
    """

    searched: TopicNames
    matching: frozenset[str]


class TopicSearch:
    """The comparison of one expression with all topics. `users` is the number of group searches waiting for its
    result."""

    __slots__ = ("result", "steps", "users")

    def __init__(self, steps: Steps[SearchResult]) -> None:
        self.steps = steps
        self.users = 0
        self.result: SearchResult | None = None

    def run_step(self) -> None:
        try:
            next(self.steps)
        except StopIteration as done:
            self.result = done.value


class Search:
    """One group's topic search. `result` is None until the search has finished."""

    __slots__ = ("group_id", "may_see", "regexes", "result", "steps")

    def __init__(self, group_id: str, regexes: frozenset[str], may_see: Callable[[str], bool]) -> None:
        self.group_id = group_id
        self.regexes = regexes
        self.may_see = may_see
        self.result: FoundTopics | None = None
        self.steps: Steps[FoundTopics] | None = None


def check_regex(regex: str) -> None:
    """Raises INVALID_REGULAR_EXPRESSION if the regular expression is not valid."""
    try:
        check(regex)
    except InvalidPattern as error:
        what = (
            f"SubscribedTopicRegex `{shortened(regex, MAX_QUOTED_LENGTH)}` is not a valid regular expression: {error}."
        )
        raise KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION, what) from None


class TopicSearches:
    def __init__(self, topics: Callable[[], tuple[int, Collection[str]]], max_work: int = MAX_WORK) -> None:
        """Creates a coordinator's topic searches, with an empty cache.

        topics     returns the version of the cluster's topics, and their names
        max_work   maximum work units of a pattern; a search that exceeds them is abandoned
        """
        self.work = 0  # total work of all patterns so far
        self._topics = topics
        self._max_work = max_work
        self._notify: Callable[[str], None] = _ignore_end
        self._names = TopicNames(-1, frozenset())
        self._results: dict[str, SearchResult] = {}  # by expression, the most recently used last
        self._cached_names = 0
        self._comparisons: dict[str, TopicSearch] = {}  # comparisons in progress, by expression
        # By group: searches in progress, and finished searches whose result has not been fetched.
        self._searches: dict[str, Search] = {}
        self._running: deque[Search] = deque()
        self._waiting: deque[Search] = deque()
        self._task: asyncio.Task[None] | None = None
        self._costly: dict[str, None] = {}

    def when_found(self, notify: Callable[[str], None]) -> None:
        """Registers a callback for searches whose `find` call returned None. The callback receives the group's id when
        a search finishes."""
        self._notify = notify

    def check_cost(self, regex: str) -> None:
        """Raises INVALID_REGULAR_EXPRESSION if an earlier search with this expression was abandoned because of its
        cost."""
        if regex in self._costly:
            what = (
                f"SubscribedTopicRegex `{shortened(regex, MAX_QUOTED_LENGTH)}` needs more than {self._max_work:,} steps"
                " to be matched against the topics of this cluster. Write a simpler expression, or list the topics."
            )
            raise KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION, what)

    def find(self, group_id: str, regexes: Collection[str], may_see: Callable[[str], bool]) -> FoundTopics | None:
        """Finds a group's topics; see `ClusterView.find_topics`. The previous search is abandoned if the group's
        expressions have changed, or if a new group with the same id searches on behalf of another client."""
        requested = frozenset(regexes)
        search = self._searches.get(group_id)
        if search is not None and search.regexes == requested and search.may_see is may_see:
            if search.result is not None:
                del self._searches[group_id]
            return search.result
        search = Search(group_id, requested, may_see)
        search.steps = self._search(search)
        self._searches[group_id] = search
        if self._task is None:
            for _ in self._steps_of(search):
                pass
            if search.result is not None:
                del self._searches[group_id]
                return search.result
            self._running.append(search)
            self._task = asyncio.get_running_loop().create_task(work_in_slices(self._all_steps()))
        else:
            self._waiting.append(search)
        return None

    def forget(self, group_id: str) -> None:
        """Abandons a group's topic search; see `ClusterView.forget_search`."""
        self._searches.pop(group_id, None)

    @property
    def count(self) -> int:
        """The number of groups whose search is in progress or whose result has not been fetched."""
        return len(self._searches)

    def _all_steps(self) -> Iterator[None]:
        """Runs the searches in turn, one round at a time, until no search is left. Yields after each step."""
        while self._running or self._waiting:
            while self._waiting and len(self._running) < MAX_RUNNING_SEARCHES:
                self._running.append(self._waiting.popleft())
            search = self._running.popleft()
            yield from self._steps_of(search)
            if search.result is not None:
                self._notify(search.group_id)
            elif self._is_wanted(search):
                self._running.append(search)
        self._task = None

    def _steps_of(self, search: Search) -> Iterator[None]:
        """Continues a search for one round, or until it has finished or is no longer needed."""
        steps = search.steps
        assert steps is not None, "a search gets its steps when it is created"
        for _ in range(STEPS_PER_ROUND):
            if not self._is_wanted(search):
                steps.close()
                return
            try:
                next(steps)
            except StopIteration as done:
                search.result = done.value
                return
            except Exception:
                del self._searches[search.group_id]  # so that the group's next call to `find` starts a new search
                logger.exception("the regular expressions of group %s cannot be resolved", quoted(search.group_id))
                return
            yield

    def _is_wanted(self, search: Search) -> bool:
        """Returns whether the search is still the group's current search."""
        return self._searches.get(search.group_id) is search

    def _search(self, search: Search) -> Steps[FoundTopics]:
        version = self._topics()[0]
        topics: dict[str, frozenset[str]] = {}
        for regex in search.regexes:
            result = yield from self._matching(regex)
            version = min(version, result.searched.version)
            visible = []
            for number, name in enumerate(result.matching, 1):
                if search.may_see(name):
                    visible.append(name)
                if number % NAMES_PER_STEP == 0:
                    yield
            topics[regex] = frozenset(visible)
        return FoundTopics(version, topics)

    def _matching(self, regex: str) -> Steps[SearchResult]:
        """Finds the topics that match one expression, sharing the work with other searches for the same expression."""
        result = self._results.get(regex)
        if result is not None and result.searched.version == self._topics()[0]:
            self._results[regex] = self._results.pop(regex)
            return result
        comparison = self._comparisons.get(regex)
        if comparison is None:
            comparison = self._comparisons[regex] = TopicSearch(self._compare(regex, result))
        comparison.users += 1
        try:
            while comparison.result is None:
                comparison.run_step()
                yield
            self._cache_result(regex, comparison.result)
            return comparison.result
        finally:
            comparison.users -= 1
            is_over = comparison.result is not None or comparison.users == 0
            if is_over and self._comparisons.get(regex) is comparison:
                del self._comparisons[regex]

    def _compare(self, regex: str, result: SearchResult | None) -> Steps[SearchResult]:
        all_names = self._all_names()
        try:
            pattern = Pattern(regex)
        except InvalidPattern:  # the expression was accepted and stored by another broker
            return SearchResult(all_names, frozenset())
        matching: list[str] = []
        work = 0
        for number, name in enumerate(all_names.names, 1):
            if result is not None and name in result.searched.names:
                if name in result.matching:
                    matching.append(name)
            elif (yield from pattern.steps(name)):
                matching.append(name)
            self.work += pattern.work - work
            work = pattern.work
            if work > self._max_work:
                self._refuse(regex)
                return SearchResult(all_names, frozenset())
            if number % NAMES_PER_STEP == 0:
                yield
        return SearchResult(all_names, frozenset(matching))

    def _all_names(self) -> TopicNames:
        version, names = self._topics()
        if version != self._names.version:
            self._names = TopicNames(version, frozenset(names))
        return self._names

    def _cache_result(self, regex: str, found: SearchResult) -> None:
        before = self._results.pop(regex, None)
        if before is not None:
            self._cached_names -= len(before.matching)
        self._results[regex] = found
        self._cached_names += len(found.matching)
        while len(self._results) > MAX_EXPRESSIONS or (self._cached_names > MAX_NAMES and len(self._results) > 1):
            oldest = next(iter(self._results))
            self._cached_names -= len(self._results.pop(oldest).matching)

    def _refuse(self, regex: str) -> None:
        if len(self._costly) >= MAX_EXPRESSIONS:
            del self._costly[next(iter(self._costly))]
        self._costly[regex] = None


def _ignore_end(group_id: str) -> None:
    """Does nothing when a search finishes. Used until `when_found` registers a callback."""
