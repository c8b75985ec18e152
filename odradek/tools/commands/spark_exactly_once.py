"""`odradek spark exactly-once`: is each record of an input in an output, once?"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING

from odradek.tools.commands.errors import DIFFERENT, DONE
from odradek.tools.commands.options import add_json
from odradek.tools.commands.output import print_object, table
from odradek.tools.commands.spark_options import SOURCES, Actions, add_isolation_level, add_session, columns_of, session

if TYPE_CHECKING:
    from odradek.spark.audit import Comparison


def configure(actions: Actions) -> None:
    parser = actions.add_parser(
        "exactly-once",
        help="was each record of an input written to an output, once? Lost, repeated and invented ones, with examples",
        description="Compare the records of two topics as multisets: what is lost, repeated or invented in the output."
        " --on says by what a record of the output is known as one of the input: columns (key, value, headers …) or SQL"
        " expressions. " + SOURCES,
        epilog="exit status: 0 exactly once, 6 not so, else as everywhere",
    )
    parser.add_argument("--input", required=True, metavar="SOURCE", help="kafka://HOST:PORT/TOPIC or DIR/TOPIC")
    parser.add_argument("--output", required=True, metavar="SOURCE", help="the same, of what was written")
    parser.add_argument(
        "--on", type=columns_of, default=["key", "value"], metavar="COLUMNS", help="with commas; default: key,value"
    )
    parser.add_argument(
        "--output-on", type=columns_of, metavar="COLUMNS", help="the same for the output, where it is spelt otherwise"
    )
    parser.add_argument(
        "--examples", type=int, default=5, metavar="N", help="of each kind of difference; default: %(default)s"
    )
    add_isolation_level(parser)
    add_session(parser)
    add_json(parser)
    parser.set_defaults(run=exactly_once)


def exactly_once(options: argparse.Namespace) -> int:
    from odradek.spark.inputs import input_of, one_topic

    if options.output_on is not None and len(options.output_on) != len(options.on):
        raise ValueError("--on and --output-on have to name as many columns")
    level = {"kafka.isolation.level": options.isolation_level}
    source, output = (one_topic(input_of(each)).with_options(**level) for each in (options.input, options.output))
    with session(options, "exactly-once") as spark:
        from odradek.spark.audit import compare

        compared = compare(
            source.frame(spark),
            output.frame(spark),
            options.on,
            output_on=options.output_on,
            examples=options.examples,
        )
    if options.json:
        print_object(dataclasses.asdict(compared) | {"is_exact": compared.is_exact})
    else:
        for line in _lines(compared):
            print(line)
    return DONE if compared.is_exact else DIFFERENT


def _lines(compared: Comparison) -> Iterator[str]:
    yield f"{'exactly once' if compared.is_exact else 'NOT exactly once'}: {compared}"
    if not compared.examples:
        return
    names = list(compared.examples[0].value)
    rows = [
        {
            "verdict": each.verdict,
            **{f"on {name}": value for name, value in each.value.items()},
            "input_count": each.input_count,
            "output_count": each.output_count,
            "first_input": each.first_input,
            "first_output": each.first_output,
            "last_output": each.last_output if each.last_output != each.first_output else None,
        }
        for each in compared.examples
    ]
    yield ""
    yield from table(
        rows,
        {
            "verdict": "VERDICT",
            **{f"on {name}": name.upper() for name in names},
            "input_count": "IN",
            "output_count": "OUT",
            "first_input": "INPUT AT",
            "first_output": "OUTPUT AT",
            "last_output": "LAST AT",
        },
    )
