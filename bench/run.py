"""Measures the broker's budget row by row. Prints the goal, the figure, and a comparison with the current speed of this
machine.

python -m bench.run [--kafka] [--rows start,clients_1k] [--only pure,kfake] [--quick] [--json FILE]

Measures the current sources (pure), the result of `make compile` (compiled), kfake if Go is installed, and with --kafka
also Apache Kafka 4.3.1 or another release. All brokers take turns in one run, and figures are the medians of the
rounds. Brokers that are not available are named and left out. Goals apply to the compiled variant if it is available.
In the last columns, the figures are divided by those of a trivial program that does the same work (bench/baselines.py),
so that they can be compared across machines. The row names are those in bench/rows.py.
"""

import argparse
import signal
import sys
import tempfile
import time
from collections.abc import Collection, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path

from bench.native import NoCompiler, compiled
from bench.raw import RawLoad
from bench.rows import MEASUREMENTS, Measurement
from bench.subjects import COMPILED, KAFKA, KAFKA_RELEASE, KFAKE, OURS, PURE, Subject, maker
from bench.table import BASELINE, Results, lines, machine, markdown, write_json
from bench.variants import NotThere

DEFAULT = frozenset({PURE, COMPILED, KFAKE})
QUICK_SHARE = 0.25
WARM_UP_SHARE = 0.5
# duration of the load before the first measurement, during which just-in-time compilers compile the hot code
WARM_UP_OF_A_BROKER = 6.0


def main() -> int:
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # SIGTERM stops the brokers just as Ctrl-C does
    options = parse()
    chosen = [one for one in MEASUREMENTS if options.rows is None or one.name in options.rows]
    results = Results()
    about = machine()
    print(f"{about['cpus']} CPUs, {about['model']}, Python {about['python']}, load {about['load_average'][0]:.1f}\n")
    with tempfile.TemporaryDirectory(prefix="odradek-bench-") as work:
        names = options.only or DEFAULT | ({KAFKA} if options.kafka else set())
        subjects = available_subjects(names, Path(work), options.kafka_release)
        try:
            for number, measurement in enumerate(chosen, 1):
                print(f"[{number}/{len(chosen)}] {measurement.name}:", end="", flush=True)
                measure(measurement, subjects, results, is_quick=options.quick)
        except KeyboardInterrupt:
            print("interrupted: these are the results so far", file=sys.stderr)
        finally:
            for subject in subjects:
                subject.end()
    print()
    print(markdown(results))
    if options.json is not None:
        write_json(results, options.json)
    return 1 if results.failures else 0


def available_subjects(names: Collection[str], work: Path, kafka_release: str) -> list[Subject]:
    """Returns the available brokers in column order."""
    found = []
    for name in (PURE, COMPILED, KAFKA, KFAKE):
        if name in names:
            try:
                found.append(Subject(name, maker(name, kafka_release), work))
            except NotThere as reason:
                print(f"{name} is left out: {reason}")
    return found


def rounds(measurement: Measurement, who: str) -> int:
    return {KAFKA: measurement.kafka_rounds, KFAKE: measurement.kfake_rounds}.get(who, measurement.rounds)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--kafka", action="store_true", help="also measure Apache Kafka (needs Java and the oracle kit)"
    )
    parser.add_argument(
        "--kafka-release",
        default=KAFKA_RELEASE,
        metavar="RELEASE",
        help=f"release of Apache Kafka, instead of {KAFKA_RELEASE}; rows of streams groups need 4.4.0",
    )
    parser.add_argument(
        "--only", type=subject_names, metavar="A,B", help="measure only these, from pure, compiled, kafka, kfake"
    )
    parser.add_argument("--rows", type=row_names, metavar="A,B", help="measure only these rows")
    parser.add_argument("--quick", action="store_true", help="run each row once and briefly, to test that it works")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every sample to this file")
    return parser.parse_args()


def row_names(text: str) -> frozenset[str]:
    names = frozenset(text.split(","))
    known = [measurement.name for measurement in MEASUREMENTS]
    if unknown := names - set(known):
        raise argparse.ArgumentTypeError(f"no such rows: {', '.join(sorted(unknown))}; the rows are {', '.join(known)}")
    return names


def subject_names(text: str) -> frozenset[str]:
    names = frozenset(text.split(","))
    if unknown := names - {PURE, COMPILED, KAFKA, KFAKE}:
        raise argparse.ArgumentTypeError(f"no such brokers: {', '.join(sorted(unknown))}")
    return names


def warm_up(subject: Subject, measurement: Measurement) -> None:
    if not subject.is_warm:
        subject.is_warm = True
        with suppress(NoCompiler):
            RawLoad(1024, 32, 1).measure(subject, WARM_UP_OF_A_BROKER)
    measurement.measure(subject, WARM_UP_SHARE)


def measure(measurement: Measurement, subjects: Sequence[Subject], results: Results, *, is_quick: bool) -> None:
    """Runs all rounds of one measurement. The brokers and the baseline take turns."""
    share = QUICK_SHARE if is_quick else 1.0
    begun = time.monotonic()
    try:
        if measurement.is_raw:
            compiled("load")
        if measurement.warms_up and not is_quick:
            for subject in subjects:
                if not rounds(measurement, subject.name):
                    continue
                print_progress(f"{subject.name} warms up")
                # For other brokers, the measured rounds will report the error.
                with nullcontext() if subject.name in OURS else suppress(RuntimeError):
                    warm_up(subject, measurement)
        most = max(rounds(measurement, subject.name) for subject in subjects)
        for turn in range(min(1, most) if is_quick else most):
            for subject in subjects:
                if turn < rounds(measurement, subject.name):
                    print_progress(subject.name)
                    try:
                        results.add(measurement, subject.name, measurement.measure(subject, share))
                    except RuntimeError as error:
                        if subject.name in OURS:
                            raise
                        print_progress(f"failed ({error})")  # The other brokers' figures are still useful.
            if measurement.baseline is not None and turn < measurement.rounds:
                print_progress(BASELINE)
                with suppress(NoCompiler):  # Without a compiler, only the row's baseline is missing.
                    results.add(measurement, BASELINE, measurement.baseline(share / 2))
    except NoCompiler as reason:
        results.failures[measurement.name] = str(reason)
    except Exception as error:  # The other rows are still useful.
        results.failures[measurement.name] = f"failed: {error}"
    summary = results.failures.get(measurement.name) or "; ".join(
        " ".join(cell for cell in line.cells() if cell) for line in lines(results, measurement)
    )
    print(f" ({time.monotonic() - begun:.0f} s)\n    {summary}", flush=True)


def print_progress(what: str) -> None:
    """Appends the current step to the measurement's progress line."""
    print(f" {what}", end="", flush=True)


if __name__ == "__main__":
    sys.exit(main())
