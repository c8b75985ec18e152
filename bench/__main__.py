"""Runs a measurement: `make bench ARGS="NAME OPTIONS"`, or `python -m bench NAME OPTIONS`.

python -m bench               measures the broker's budget, row by row
python -m bench NAME --help   prints the options of one of the measurements below
"""

import sys
from runpy import run_module

MEASUREMENTS = {
    "broker": ("bench.run", "measures the budget row by row, and compares the variants and kfake; --kafka adds Kafka"),
    "guard": (
        "bench.guard",
        "compares CPU per operation with the previous commit, or with that of --base",
    ),
    "hostile": (
        "bench.hostile",
        "sends hostile requests, measures memory and how long other clients wait; compares with Kafka",
    ),
    "scale": ("bench.scale", "measures how cost grows with connections, partitions, producers, logs and groups"),
    "recordings": ("bench.recordings", "measures the CPU of a broker with a judge attached, and with --record"),
    "judging": ("bench.judging", "measures CPU and memory of `odradek judge` for a recording of librdkafka"),
    "clusters": (
        "bench.clusters",
        "measures the control of clusters: calls, memory, cost for other clusters",
    ),
    "fixtures": ("bench.fixtures", "measures the time that a fresh cluster adds to a test, in each language"),
    "files": ("bench.files", "measures `odradek inspect check`, and reading records from files; writes 5 GB of them"),
    "spark": ("bench.spark", "compares our Spark source and sink with Spark's own (Java 17, Maven)"),
    "codec": ("bench.codec", "measures the codec, and compares it with construct, compiled on the same machine"),
    "dispatch": ("bench.dispatch", "measures the CPU for dispatching a request, without its handler"),
    "append": ("bench.log_append", "measures an append to a log, and opening a directory with many logs"),
    "validation": ("bench.validation", "measures the validation of produced records"),
    "authorization": ("bench.authorization", "measures an authorizer's decision, and a Produce with an authorizer"),
    "command": ("bench.command_start", "measures the time until a command sends its first byte to a broker"),
    "registry": ("bench.registry", "measures the schema registry: start, memory, registrations, look-ups"),
    "commands": ("bench.commands", "measures commands with 100,000 topics, groups, ACLs and transactions"),
    "walks": ("bench.walks", "lists the files of the broker that a request passes through, from frame to answer"),
    "hop": ("bench.process_hop", "measures a request to another process"),
    "ids": ("bench.transactional_ids", "measures transactional ids that are used only once"),
}


def main() -> None:
    name = sys.argv.pop(1) if len(sys.argv) > 1 and not sys.argv[1].startswith("-") else "broker"
    if name not in MEASUREMENTS or (name == "broker" and {"-h", "--help"} & set(sys.argv[:2])):
        print(__doc__)
        for each, (_, what) in MEASUREMENTS.items():
            print(f"    {each:<14}{what}")
        if name not in MEASUREMENTS:
            sys.exit(f"\nthere is no measurement named {name}")
        print()
    run_module(MEASUREMENTS[name][0], run_name="__main__", alter_sys=True)


main()
