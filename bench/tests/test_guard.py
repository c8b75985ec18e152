"""Tests that the guard reports an operation as slower only if it really is, even on a busy machine, and that the guard
finds the commit to compare with."""

import subprocess
from pathlib import Path
from random import Random

import pytest

from bench.guard.base import NoBase, find_base, unpack
from bench.guard.comparison import ATTEMPTS, MARGIN, Attempt, Verdict, cost, verdict

TURNS = 40


def measured(random: Random, cost_us: float, *, disturbed: float = 0.6) -> list[float]:
    """Returns the CPU time per operation in each turn of a broker on a busy machine. Some turns cost up to three times
    as much, and the others a little more."""
    return [
        cost_us * (random.uniform(1.2, 3.0) if random.random() < disturbed else random.uniform(1.0, 1.08))
        for _ in range(TURNS)
    ]


def attempts(seed: int, before_us: float, after_us: float) -> list[Attempt]:
    random = Random(seed)
    return [Attempt(measured(random, before_us), measured(random, after_us)) for _ in range(ATTEMPTS)]


@pytest.mark.parametrize("seed", range(40))
def test_a_busy_machine_makes_nothing_slower(seed: int) -> None:
    assert verdict(attempts(seed, 20.0, 20.0)) is Verdict.AS_BEFORE


@pytest.mark.parametrize("seed", range(40))
def test_half_as_much_again_is_slower_on_a_busy_machine_too(seed: int) -> None:
    assert verdict(attempts(seed, 20.0, 30.0)) is Verdict.SLOWER


def test_the_margin_is_as_before_and_more_is_not() -> None:
    assert verdict([Attempt([20.0], [20.0 * MARGIN])] * ATTEMPTS) is Verdict.AS_BEFORE
    assert verdict([Attempt([20.0], [20.1 * MARGIN])] * ATTEMPTS) is Verdict.SLOWER
    assert verdict([Attempt([20.0], [20.1 * MARGIN])] * ATTEMPTS, margin=1.5) is Verdict.AS_BEFORE


def test_what_seems_slower_is_measured_again_before_it_counts() -> None:
    slower, same = Attempt([20.0], [40.0]), Attempt([20.0], [20.0])
    assert verdict([slower]) is Verdict.AGAIN
    assert verdict([slower, slower]) is Verdict.AGAIN
    assert verdict([slower, slower, same]) is Verdict.AS_BEFORE
    assert verdict([slower, slower, slower]) is Verdict.SLOWER


def test_the_quietest_turns_count_and_at_least_one() -> None:
    assert cost([30.0, 10.0, 20.0, 90.0, 90.0, 90.0, 90.0, 90.0, 90.0, 90.0]) == 15.0
    assert cost([7.0]) == 7.0
    with pytest.raises(ValueError, match="no turns"):
        cost([])


def git(folder: Path, *words: str) -> None:
    who = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", "-C", str(folder), *who, *words], check=True, capture_output=True)


def commit(folder: Path, code: str, subject: str) -> None:
    package = folder / "odradek"
    package.mkdir(exist_ok=True)
    (package / "one.py").write_text(code)
    git(folder, "add", ".")
    git(folder, "commit", "--allow-empty", "-m", subject)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init", "--initial-branch=main")
    commit(folder, "a = 1\n", "one")
    commit(folder, "a = 2\n", "two")
    return folder


def test_the_parent_is_the_base_and_its_code_is_what_it_was(repository: Path, tmp_path: Path) -> None:
    base = find_base(None, repository)
    assert base.subject == "one"
    assert (unpack(base, tmp_path / "base", repository) / "odradek" / "one.py").read_text() == "a = 1\n"


def test_a_branch_is_compared_with_where_it_left_another_one(repository: Path) -> None:
    git(repository, "checkout", "-b", "work")
    commit(repository, "a = 3\n", "three")
    commit(repository, "a = 4\n", "four")
    git(repository, "checkout", "main")
    commit(repository, "a = 5\n", "five")
    git(repository, "checkout", "work")
    assert find_base("main", repository).subject == "two"


def test_a_shallow_clone_has_nothing_to_compare_with(repository: Path, tmp_path: Path) -> None:
    git(tmp_path, "clone", "--depth", "1", f"file://{repository}", "shallow")
    with pytest.raises(NoBase, match="no parent"):
        find_base(None, tmp_path / "shallow")


def test_a_folder_without_history_has_nothing_to_compare_with(tmp_path: Path) -> None:
    with pytest.raises(NoBase, match="no parent"):
        find_base(None, tmp_path)


def test_code_that_has_not_changed_is_not_measured(repository: Path) -> None:
    (repository / "README.md").write_text("more")
    git(repository, "add", ".")
    git(repository, "commit", "-m", "docs")
    with pytest.raises(NoBase, match="has changed"):
        find_base(None, repository)
    (repository / "odradek" / "one.py").write_text("a = 9\n")  # this change is not committed
    assert find_base("HEAD", repository).subject == "docs"
