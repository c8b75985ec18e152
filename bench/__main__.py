"""Starts any measurement: `make bench ARGS="NAME OPTIONS"`, or `python -m bench NAME OPTIONS`.

python -m bench               measures the broker's budget, row by row
python -m bench NAME --help   prints the options of one of the measurements below
"""

import sys
from runpy import run_module

MEASUREMENTS = {
    "broker": ("bench.run", "the budget row by row, beside the compiled variant and kfake; --kafka adds Apache Kafka"),
    "guard": ("bench.guard", "CPU per operation beside the commit before; --base main: beside where the branch began"),
    "hostile": ("bench.hostile", "hostile requests: how long other clients wait, and memory, beside Apache Kafka"),
    "scale": ("bench.scale", "growth of cost with connections, partitions, producers, the size of a log, groups"),
    "recordings": ("bench.recordings", "CPU of a broker with a judge attached, and with --record"),
    "judging": ("bench.judging", "CPU and memory of `odradek judge` of a recording of librdkafka"),
    "clusters": ("bench.clusters", "clusters under control: their calls, memory, cost beside others; --kafka"),
    "fixtures": ("bench.fixtures", "time that a fresh cluster adds to a test, for the fixtures of each language"),
    "files": ("bench.files", "`odradek inspect check`, and records read from files: 5 GB in a temporary directory"),
    "spark": ("bench.spark", "our source and sink beside Spark's own (Java 17, Maven)"),
    "codec": ("bench.codec", "codec times, next to construct compiled on the same machine"),
    "dispatch": ("bench.dispatch", "CPU of dispatching, without the handler"),
    "append": ("bench.log_append", "an append inside the log, and opening a directory of many logs"),
    "validation": ("bench.validation", "checking produced records"),
    "authorization": ("bench.authorization", "a decision of the authorizer, and a Produce with it"),
    "command": ("bench.command_start", "a command until its first byte is sent to a broker"),
    "registry": ("bench.registry", "the schema registry: start, memory, registrations, look-ups"),
    "commands": ("bench.commands", "what commands cost with 100,000 topics, groups, ACLs, transactions"),
    "walks": ("bench.walks", "which files of the broker a request passes, from its frame to its answer"),
    "hop": ("bench.process_hop", "a request to another process"),
    "ids": ("bench.transactional_ids", "transactional ids that are used once"),
}


def main() -> None:
    name = sys.argv.pop(1) if len(sys.argv) > 1 and not sys.argv[1].startswith("-") else "broker"
    if name not in MEASUREMENTS or (name == "broker" and {"-h", "--help"} & set(sys.argv[:2])):
        print(__doc__)
        for each, (_, what) in MEASUREMENTS.items():
            print(f"    {each:<14}{what}")
        if name not in MEASUREMENTS:
            sys.exit(f"\nno measurement is called {name}")
        print()
    run_module(MEASUREMENTS[name][0], run_name="__main__", alter_sys=True)


main()
