"""Measures how costs grow with size: `make bench ARGS=scale`. The axes are connections, partitions, producers, log
size, and groups.

python -m bench.scale [--only connections,log] [--largest 1000] [--json FILE] [--charts docs/scale]

Each size runs on a new broker. The figures are CPU time per request, p99, RSS after the load, and the cost of
restarting after a stop and after a kill. The cost of a restart is given as CPU time, because CPU time depends least on
other work on the machine. Prints a table and the size at which each cost has doubled. --charts writes the table and an
SVG for each axis. --charts with --from FILE draws figures stored earlier with --json.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from bench.process_usage import MIB, cpu_seconds
from bench.scale.axes import AXES, Axis
from bench.scale.chart import svg
from bench.scale.figures import Curve, Point, knees, shown, shown_size, table
from bench.subjects import PURE, SETTINGS, Subject
from bench.table import machine
from tests.support.broker_process import Broker, BrokerProcess
from tests.support.wire import Wire

OVERRIDES = {**SETTINGS, "group.initial.rebalance.delay.ms": 0}
FIGURES = "# All figures of how cost grows"
START_TIMEOUT_S = 900.0  # long enough to read a log of 50 GB once


def new_odradek(data_dir: Path, port: int) -> Broker:
    environment = {"PYTHONDONTWRITEBYTECODE": ""}
    return BrokerProcess(data_dir, OVERRIDES, port=port, environment=environment, start_timeout_s=START_TIMEOUT_S)


def measure(axis: Axis, size: int, work: Path) -> Point:
    subject = Subject(PURE, new_odradek, work)
    try:
        load = axis.measure(subject, size)
        rss_mib = subject.rss_bytes() / MIB
        clean_s = restarted(subject.broker, Broker.stop, lambda wire: axis.is_back(wire, size))
        killed_s = restarted(subject.broker, Broker.kill9, lambda wire: axis.is_back(wire, size))
    finally:
        subject.end()
    return Point(size, load.cpu_us, load.p99_us, rss_mib, clean_s, killed_s)


def restarted(broker: Broker, end: Callable[[Broker], None], is_back: Callable[[Wire], None]) -> float:
    """Restarts the broker. Returns the new process's CPU seconds until the broker serves requests again."""
    end(broker)
    broker.start()
    with Wire(broker.bootstrap, timeout_s=300) as wire:
        is_back(wire)
    assert broker.pid is not None
    return cpu_seconds(broker.pid)


def run(axis: Axis, largest: int | None) -> Curve:
    """Measures all sizes of an axis. If a size fails, reports the failure and leaves out the larger sizes."""
    points: list[Point] = []
    curve = Curve(axis.name, axis.title, axis.request, ())
    for size in axis.sizes:
        if largest is not None and size > largest:
            break
        began = time.monotonic()
        print(f"{axis.title}, {shown_size(curve, size)}:", end="", flush=True)
        try:
            with tempfile.TemporaryDirectory(prefix="odradek-scale-") as work:
                point = measure(axis, size, Path(work))
        except (RuntimeError, OSError) as error:
            print(f" failed: {error}", flush=True)
            break
        points.append(point)
        figures = f"{shown(point.cpu_us)} µs, p99 {shown(point.p99_us)} µs, {shown(point.rss_mib)} MiB"
        figures += f", restart {shown(point.clean_s)} / {shown(point.killed_s)} s"
        print(f" {figures} ({time.monotonic() - began:.0f} s)", flush=True)
    return Curve(axis.name, axis.title, axis.request, tuple(points))


def read(path: Path) -> tuple[list[Curve], str]:
    content = json.loads(path.read_text())
    curves = [
        Curve(one["name"], one["title"], one["request"], tuple(Point(**point) for point in one["points"]))
        for one in content["curves"]
    ]
    return curves, content["about"]


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [axis.name for axis in AXES]
    parser.add_argument(
        "--only", type=lambda text: text.split(","), default=names, metavar="A,B", help=", ".join(names)
    )
    parser.add_argument("--largest", type=int, metavar="N", help="leave out larger sizes (those of the log are in MB)")
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="write the figures to this file, next to those of other axes"
    )
    parser.add_argument(
        "--from", type=Path, dest="kept", metavar="FILE", help="measure nothing, and use the figures in this file"
    )
    parser.add_argument("--charts", type=Path, metavar="DIR", help="write an SVG for each axis")
    options = parser.parse_args()
    if unknown := set(options.only) - set(names):
        parser.error(f"no such axis: {', '.join(sorted(unknown))}; the axes are {', '.join(names)}")
    return options


def main() -> int:
    options = parse()
    _, max_files = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max_files, max_files))
    if options.kept is not None:
        curves, about = read(options.kept)
    else:
        found = machine()
        about = f"{time.strftime('%Y-%m-%d')}, {found['cpus']} cores, Python {found['python']}"
        curves = [run(axis, options.largest) for axis in AXES if axis.name in options.only]
    if options.json is not None:
        if options.json.exists():
            others = [one for one in read(options.json)[0] if one.name not in {curve.name for curve in curves}]
            order = [axis.name for axis in AXES]
            curves = sorted([*others, *curves], key=lambda one: order.index(one.name))
        content = {"about": about, "curves": [asdict(curve) for curve in curves]}
        options.json.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")
    if options.charts is not None:
        options.charts.mkdir(parents=True, exist_ok=True)
        for curve in curves:
            (options.charts / f"{curve.name}.svg").write_text(svg(curve, about))
        written = "Written by `python -m bench.scale --charts docs/scale`."
        (options.charts / "figures.md").write_text(f"{FIGURES}\n\n{written}\n{about}.\n\n{table(curves)}\n")
    print(f"\n{table(curves)}\n")
    for curve in curves:
        print(f"{curve.title}. {'; '.join(knees(curve))}.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
