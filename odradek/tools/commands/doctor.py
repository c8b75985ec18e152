"""Implements `odradek doctor`, which checks for common problems and explains how to fix them."""

from __future__ import annotations

import argparse
import asyncio
import os
from dataclasses import asdict
from pathlib import Path

from odradek.tools.commands.errors import DONE, REFUSED
from odradek.tools.commands.options import add_connection, add_json, security
from odradek.tools.commands.output import print_object

MARKS = {"ok": "ok      ", "warning": "WARNING ", "problem": "PROBLEM "}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--data-dir", metavar="DIR", help="the broker's data directory; default: that of `odradek serve`"
    )
    parser.add_argument(
        "--no-broker", action="store_true", help="check only this machine; the broker does not have to be running"
    )
    add_json(parser)
    add_connection(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Runs the checks. Returns REFUSED if there is a problem. Warnings do not count as problems."""
    from odradek.serve import default_data_directory
    from odradek.tools.doctor.facts import broker_facts, directory_facts, machine_facts
    from odradek.tools.doctor.findings import Severity, diagnose_broker, diagnose_directory, diagnose_machine

    directory = Path(options.data_dir) if options.data_dir else default_data_directory(os.environ)
    findings = [*diagnose_machine(machine_facts()), *diagnose_directory(directory_facts(directory))]
    if not options.no_broker:
        findings += diagnose_broker(
            asyncio.run(broker_facts(options.bootstrap_server, options.timeout, security(options)))
        )
    if options.json:
        print_object([{**asdict(each), "level": each.level.value} for each in findings])
    else:
        for each in findings:
            print(f"{MARKS[each.level.value]}{each.about}: {each.says}")
            if each.advice is not None:
                print(f"        → {each.advice}")
    return REFUSED if any(each.level is Severity.PROBLEM for each in findings) else DONE
