"""All commands but the fast path of `serve`, with help and completion."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from odradek import __version__
from odradek.spark.commands import app as spark
from odradek.transactions.commands import app as transactions

SERVE_HELP = """
Start the broker and serve until SIGTERM or Ctrl-C.

Kafka clients connect to the port of the first listener (9092 unless configured); one line is printed when they can.
Settings carry Kafka's property names. The later of these wins: --config file, KAFKA_* environment variables (as the
apache/kafka image reads them: KAFKA_LOG_RETENTION_MS is log.retention.ms), --override, and --port and --data-dir.

Examples:

  odradek serve

  odradek serve --port 0 --ephemeral --ready-file ready.json

  odradek serve --config server.properties --override num.partitions=3
"""

INSPECT_HELP = """
Print files of a data directory, or a whole directory, as text.

Logs (records of internal topics and control records decoded), indexes, producer snapshots, checkpoints, metadata
snapshots, and requests and responses. Every line begins with its position in bytes. The exit status is 1 if anything
could not be read.

Examples:

  odradek inspect data/payments-0/00000000000000000000.log

  odradek inspect --json data/__transaction_state-7/*.log | jq .state

  odradek inspect --as response:Fetch:12 answer.bin
"""

app = typer.Typer(
    name="odradek",
    help="A Kafka broker in one Python process, its log on disk in Kafka's own formats.",
    no_args_is_help=True,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(transactions)
app.add_typer(spark)


@app.callback()
def odradek() -> None:
    pass


@app.command(help=SERVE_HELP)
def serve(
    config: Annotated[Path | None, typer.Option(help="A server.properties file.", metavar="FILE")] = None,
    override: Annotated[
        list[str] | None, typer.Option(help="One setting; may be repeated.", metavar="NAME=VALUE")
    ] = None,
    data_dir: Annotated[
        Path | None,
        typer.Option(
            help="The data directory; created if missing. Default: log.dirs if set, else ~/.local/share/odradek.",
            metavar="DIR",
        ),
    ] = None,
    port: Annotated[int | None, typer.Option(help="The port of the first listener; 0 takes a free one.")] = None,
    ready_file: Annotated[
        Path | None,
        typer.Option(
            help="Written atomically when connections are accepted: JSON with host, port, http_port, node_id,"
            " cluster_id, data_dir, pid, start_ms.",
            metavar="FILE",
        ),
    ] = None,
    ephemeral: Annotated[
        bool, typer.Option("--ephemeral", help="Use a fresh data directory that is removed with the process.")
    ] = False,
) -> None:
    from odradek.serve import ServeOptions, run

    options = ServeOptions(
        config=config,
        overrides=tuple(override or ()),
        data_dir=data_dir,
        port=port,
        ready_file=ready_file,
        is_ephemeral=ephemeral,
    )
    raise typer.Exit(run(options))


@app.command(help=INSPECT_HELP)
def inspect(
    files: Annotated[list[Path], typer.Argument(help="Files or directories.", metavar="FILE...")],
    json: Annotated[bool, typer.Option("--json", help="One JSON object per line.")] = False,
    kind: Annotated[
        str | None, typer.Option("--as", help="The kind of the files, if their names do not tell.", metavar="KIND")
    ] = None,
    topic: Annotated[
        str | None, typer.Option(help="The topic of a log outside of its directory.", metavar="NAME")
    ] = None,
    batches: Annotated[bool, typer.Option("--batches", help="Only the batches of logs, not their records.")] = False,
    full: Annotated[bool, typer.Option("--full", help="Do not shorten long keys and values.")] = False,
) -> None:
    from odradek.inspect.command import inspect as run_inspect

    status = run_inspect(files, kind=kind, topic=topic, as_json=json, with_records=not batches, is_full=full)
    raise typer.Exit(status)


@app.command()
def version() -> None:
    """Print the version."""
    typer.echo(f"odradek {__version__}")


def run(words: Sequence[str]) -> int:
    """Returns the exit status; what is wrong with `words` is said on stderr."""
    try:
        app(list(words), prog_name="odradek")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 1
    return 0
