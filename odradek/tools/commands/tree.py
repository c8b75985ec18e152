"""The table of all commands, and the function that runs a command. Running a command imports only that command's
module."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module

from odradek.client.common.errors import ClientError
from odradek.tools.commands.errors import DONE, INTERRUPTED, UNREACHABLE, explained
from odradek.tools.commands.output import complain
from odradek.tools.commands.parsing import CommandParser, command_first

COMPLETING = "_ARGCOMPLETE"  # set by the script of `odradek completion`
MISUNDERSTOOD = 2  # argparse's own exit status


@dataclass(frozen=True, slots=True)
class Command:
    """A command's help text and other properties.

    setup          the function that adds the command's options, as module.function; needed only if it is not
                   `configure` in the module with the command's name
    misunderstood  the exit status for an invalid command line
    """

    summary: str
    more: str = ""
    examples: tuple[str, ...] = ()
    setup: str = ""
    misunderstood: int = MISUNDERSTOOD


COMMANDS = {
    "serve": Command(
        "start the broker, and serve until SIGTERM or Ctrl-C",
        "Kafka clients connect to the first listener, by default on port 9092. The command prints one line with"
        " the addresses as soon as clients can connect. Settings have Kafka's names. If several sources set the"
        " same value, the last of these wins: the --config file, KAFKA_* environment variables"
        " (KAFKA_LOG_RETENTION_MS is log.retention.ms, as in the apache/kafka image), --override, and the options"
        " --port, --http-port and --data-dir.",
        (
            "serve",
            "serve --port 0 --ephemeral --ready-file ready.json",
            "serve --config server.properties --override num.partitions=3",
        ),
        "program.configure_serve",
    ),
    "topics": Command(
        "list, describe, create, alter and delete topics",
        examples=("topics create orders --partitions 3 --config retention.ms=-1", "topics describe orders --json"),
    ),
    "produce": Command(
        "send records from standard input or from files",
        examples=(
            "produce -t orders",
            "produce -t orders -K : < lines-with-key:value",
            "produce -t orders -k 7 -H source=shop order.json",
        ),
    ),
    "consume": Command(
        "print the records of a topic",
        examples=(
            "consume -t orders -e",
            "consume -t orders -o -10 -c 10 -f '%p %o %k %s\\n'",
            "consume -t orders -G billing --json",
        ),
    ),
    "records": Command(
        "show the offsets of partitions, and delete their oldest records",
        examples=("records offsets -t orders", "records delete -t orders -p 0 --before-offset 1000"),
    ),
    "groups": Command(
        "list, describe and delete consumer and streams groups, and reset their offsets",
        examples=(
            "groups describe billing",
            "groups describe word-count --topology",
            "groups reset-offsets billing -t orders --to-earliest --execute",
        ),
    ),
    "share-groups": Command(
        "list, describe and delete share groups, and reset their offsets",
        examples=(
            "share-groups describe workers",
            "share-groups reset-offsets workers -t jobs --to-earliest --execute",
        ),
        setup="groups.configure_share",
    ),
    "configs": Command(
        "describe and alter the settings of topics, brokers and groups",
        examples=("configs describe --topic orders --all", "configs alter --topic orders --add-config retention.ms=-1"),
    ),
    "acls": Command(
        "list, add and remove ACLs, which control who may do what",
        examples=(
            "acls add --allow-principal User:alice --producer --topic orders",
            "acls add --allow-principal User:bob --consumer --topic orders --group billing",
            "acls list --topic orders",
        ),
    ),
    "users": Command(
        "list users who log in with SCRAM, and set or delete their passwords",
        examples=("users set-password alice", "users list"),
    ),
    "quotas": Command(
        "list, set and remove the quotas of users, clients and addresses",
        "If several quotas apply to a client, the most specific one counts: a quota of a user and a client id"
        " precedes a quota of the user, which precedes a quota of the client id. Quotas of a name precede"
        " defaults.",
        (
            "quotas set --user alice producer_byte_rate=1048576 consumer_byte_rate=2097152",
            "quotas set --client-defaults request_percentage=50",
            "quotas unset --user alice producer_byte_rate",
            "quotas list --json",
        ),
    ),
    "cluster": Command(
        "show the brokers, the addresses that they advertise, and the features", examples=("cluster describe",)
    ),
    "features": Command(
        "describe the features of the cluster, and raise or lower their levels",
        examples=("features describe", "features upgrade --feature odradek.share.transactions=1"),
        setup="cluster.configure_features",
    ),
    "schemas": Command(
        "list, show, register and check the schemas of a schema registry",
        "The commands work with the registry of `odradek serve --schema-registry`, and with any other registry"
        " that has Confluent's HTTP interface. The user and the password may also be part of the registry's URL."
        " `check` ends with status 6 if the schema is not compatible.",
        (
            "schemas list",
            "schemas register orders-value order.avsc",
            "schemas check orders-value order.proto --reference money.proto=money:1",
            "schemas show orders-value --version 1 --registry http://localhost:8081",
        ),
    ),
    "seed": Command(
        "write topics, schemas and records for a demonstration",
        "Existing schemas and topics are not changed, and nothing is written to a topic that has records. The"
        " broker needs a schema registry: `odradek serve --schema-registry`.",
        ("seed --demo", "seed --demo --print > seed.json"),
    ),
    "transactions": Command(
        "list transactions, and end transactions that keep readers waiting",
        examples=("transactions list --in-doubt", "transactions find-hanging --topic orders"),
    ),
    "spark": Command(
        "list and finish the transactions of Spark queries, and run Spark jobs on whole topics",
        "`sinks` and `recover` work without Spark. The other actions need it: pip install odradek[spark].",
        examples=(
            "spark sinks",
            "spark recover spark.orders",
            "spark exactly-once --input kafka://localhost:9092/orders --output data/enriched --on key",
            "spark export data/orders --to lake",
            "spark diff data backup/data",
            "spark profile data/orders --html orders.html",
        ),
    ),
    "wait": Command(
        "wait until the broker serves, and until the given topics exist",
        "The addresses that the brokers advertise must be reachable as well. If this takes longer than --timeout,"
        " the command prints the reason and exits with status 3.",
        ("wait --timeout 30 -t orders && ./start-consumers",),
        "reachability.configure",
    ),
    "health": Command(
        "check whether the broker on this machine is ready",
        "Requests /readyz from the HTTP port that the environment configures (KAFKA_ODRADEK_HTTP_PORT). If HTTP is off"
        " or uses TLS, connects to the first listener instead. The exit status is 0 if the broker is ready and 1 if it"
        " is not. The image uses it as its health check.",
        ("health", "health --http-port 9645"),
        "program.configure_health",
    ),
    "doctor": Command(
        "find out why the broker does not work or why clients cannot reach it",
        "Checks the limits of this machine, the data directory (space, file system, clock, leftovers of a crash),"
        " the ports, and the addresses that the broker advertises. The exit status is 1 if a check finds a"
        " problem.",
        ("doctor", "doctor -b broker:29092 --data-dir /var/lib/odradek", "doctor --no-broker --json"),
    ),
    "inspect": Command(
        "print files of a data directory as text",
        "Prints logs (with decoded control records and records of internal topics), indexes, producer snapshots,"
        " checkpoints, metadata snapshots, recordings, requests and responses. Every line begins with its position in"
        " bytes. The exit status is 1 if something could not be read.",
        (
            "inspect data/payments-0/00000000000000000000.log",
            "inspect --json data/__transaction_state-7/*.log | jq .state",
            "inspect --as response:Fetch:12 answer.bin",
            "inspect --pcap kafka.pcap recording",
        ),
    ),
    "inspect check": Command(
        "check the logs of a data directory for damage",
        "Reads every batch once, at a gigabyte a second or more, without decoding its records. Finds wrong CRCs,"
        " gaps in offsets and sequences, batches that were written twice, epochs that decrease, transactions that"
        " no coordinator will end or that were committed in one partition and aborted in another, and wrong"
        " indexes. Each finding names the file, the byte and the offset, and suggests what to do. The directory"
        " may be in use. In a compacted topic, offsets may be missing; the check recognises such a topic by the"
        " cleaner's checkpoint, or by a batch with fewer records than offsets. The exit status is 0 if nothing is"
        " damaged, 1 if something is, and 2 if there is no log to check.",
        (
            "inspect check data",
            "inspect check data --topic orders --json | jq .findings",
            "inspect check data/orders-0",
        ),
        "inspect.configure_check",
    ),
    "judge": Command(
        "check which rules of Kafka's protocol a client keeps, and which it breaks",
        "Runs a command with a fresh broker, whose address is in ODRADEK_BOOTSTRAP and KAFKA_BOOTSTRAP_SERVERS, or"
        " reads a recording of `odradek serve --record`. Prints a line for each rule and client: kept, broken"
        " (with the exchanges that prove it), or not exercised. The exit status is 0 if every MUST is kept; 1 if"
        " one is broken (with --strict, also a SHOULD); 2 if the command failed or was ended by a signal; 3 if"
        " nothing was exercised, a report cannot be written, or the command line is wrong. Ctrl-C and SIGTERM end"
        " the command; the requests that clients sent before are judged.",
        (
            "judge -- pytest tests/kafka",
            "judge --only 848. --html verdict.html --junit verdict.xml -- ./my-client-tests",
            "judge --suite -- python examples/judge_drivers/librdkafka.py",
            "judge --ignore 'VER.1=issue 17 until 2027-06-30' recording",
        ),
        misunderstood=3,
    ),
    "record": Command(
        "record the requests and responses between clients and any Kafka broker",
        "Listens in front of the broker until SIGTERM or Ctrl-C. The broker must advertise this address to its"
        " clients (advertised.listeners), without TLS. The recording has the same format as that of `odradek serve"
        " --record`, so `odradek judge`, `replay` and `inspect` can read it. It contains no passwords.",
        ("record kafka.recording --listen 127.0.0.1:9092 --upstream 127.0.0.1:19092",),
    ),
    "replay": Command(
        "send the requests of a recording to a broker, and compare the responses",
        "Each request is sent when the responses that preceded it in the recording have arrived. Ids are"
        " translated. Responses are compared field by field, except for ids, times, addresses, messages, and the"
        " order of lists that the protocol leaves open. The exit status is 0 if nothing else differs, 1 if"
        " something does, 2 if the recording cannot be read or the command line is wrong, and 3 if no broker"
        " answers.",
        (
            "replay recording",
            "replay recording --bootstrap-server localhost:9092 --no-pauses",
            "replay recording --ignore 'ApiVersions.apiKeys*=this release has more'",
        ),
    ),
    "control": Command(
        "control the clusters of a test broker: inject faults, hold requests, set the clock, apply presets",
        "The broker must have been started with `odradek serve --control`. The commands print JSON. The exit"
        " status is 6 if the condition of `wait` did not become true in time.",
        (
            "control create --nodes 1,4,9",
            """control fault -C c1 '{"match": {"api": "EndTxn"}, "do": {"error": "REQUEST_TIMED_OUT"}, "times": 3}'""",
            "control clock -C c1 advance 604800000",
            "control preset -C c1 open-transaction topic=orders records=10",
            "control wait -C c1 transaction=t state=PrepareCommit",
        ),
    ),
    "certs": Command(
        "make certificates for development: for an authority, a broker and clients",
        "Makes the certificates that are missing from the directory or expire soon, as PEM and as PKCS12, and"
        " leaves the others unchanged. The command can be run again at any time. The PEM files contain unencrypted"
        " keys, and only their owner can read them.",
        ("certs", "certs secrets --host broker --client kate --client bob"),
    ),
    "completion": Command(
        "print the completion script for a shell",
        'For bash, put eval "$(odradek completion bash)" into ~/.bashrc. For zsh, put the same into ~/.zshrc, after'
        " compinit. For fish, run: odradek completion fish > ~/.config/fish/completions/odradek.fish",
        setup="program.configure_completion",
    ),
    "version": Command("print the version", setup="program.configure_version"),
}
ALIASES = {  # singular or plural forms of command names, except `record`, which is a different command
    **{name[:-1]: name for name in COMMANDS if name.endswith("s") and name[:-1] not in COMMANDS},
    "clusters": "cluster",
}
STATUSES = (
    "exit status: 0 success, 1 refused or failed, 2 wrong command line, 3 no broker reached or no answer in time,"
    " 4 a topic, group or other resource that you named does not exist, 5 not permitted, 6 a comparison found"
    " differences"
)
DESCRIPTION = "A Kafka broker in one Python process, and commands for any Kafka cluster."


def parser(command_name: str | None = None) -> CommandParser:
    """Returns the parser for all commands. Adds the options of all commands if `command_name` is None, otherwise only
    those of the named command."""
    top = CommandParser("odradek", description=DESCRIPTION, epilog=STATUSES)
    commands = top.add_subparsers(title="commands", metavar="COMMAND", dest="command", required=True)
    for name, command in COMMANDS.items():
        text = f"{command.summary[0].upper()}{command.summary[1:]}. {command.more}".rstrip()
        examples = "\n".join(f"  odradek {example}" for example in command.examples)
        one = commands.add_parser(
            name, help=command.summary, description=text, epilog=f"examples:\n{examples}" if examples else None
        )
        one.set_defaults(parser=one)
        if command_name in (None, name):
            module, _, function = (command.setup or f"{name}.configure").partition(".")
            getattr(import_module(f"odradek.tools.commands.{module}"), function)(one)
    return top


def run(words: Sequence[str], environ: Mapping[str, str] = os.environ) -> int:
    """Runs a command and returns its exit status. Prints errors on stderr."""
    if COMPLETING in environ:
        import argcomplete

        argcomplete.autocomplete(parser())
    words = command_first(words)
    if not words:
        parser("").print_help()
        return DONE
    if words == ["--version"]:
        words = ["version"]
    words[0] = ALIASES.get(words[0], words[0])
    if " ".join(words[:2]) in COMMANDS:  # the command's name consists of two words
        words = [" ".join(words[:2]), *words[2:]]
    name = words[0] if words[0] in COMMANDS else ""
    options = argparse.Namespace()
    typed: list[str] = []
    try:
        _, extra = parser(name).parse_known_args(words, options)
        if extra:
            options.parser.refuse(extra, options)
        if "profile" in options:  # the command connects to a cluster
            from odradek.tools.commands.target import choose, typed_connection

            typed = typed_connection(options, options.bootstrap_server)
            choose(options, environ)
        status: int = options.run(options)
    except SystemExit as end:
        if end.code == MISUNDERSTOOD and name:
            return COMMANDS[name].misunderstood
        return end.code if isinstance(end.code, int) else 1
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # the reader of the output, such as `head`, has closed it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return INTERRUPTED
    except Exception as error:
        status, text = explained(error)
        if "profile_properties" in options:
            text = _of_cluster(options, error, status, text, typed)
        complain(f"odradek {name}", text)
    return status


def _of_cluster(options: argparse.Namespace, error: Exception, status: int, text: str, typed: Sequence[str]) -> str:
    """Completes the error message of a command that connects to a cluster. Adds an advertised address that cannot be
    reached or the name that was probably meant, and shows options as the user typed them."""
    import asyncio

    from odradek.tools.commands.reachability import SETTING, unreachable_broker
    from odradek.tools.commands.suggestions import suggestion
    from odradek.tools.commands.target import NOBODY, WHERE_A_BROKER_IS
    from odradek.tools.commands.typed_names import as_typed, option_of_file, with_connection

    if status == UNREACHABLE and SETTING not in text:
        text = asyncio.run(unreachable_broker(options)) or text
        if options.is_default_bootstrap and NOBODY in text:
            text += f"\n{WHERE_A_BROKER_IS}"
    elif isinstance(error, OSError) and error.filename is not None:
        text = option_of_file(str(error.filename), options) + text
    elif isinstance(error, ClientError):
        first, _, rest = text.partition("\n")
        if suggested := asyncio.run(suggestion(options, error)):
            first = f"{first.rstrip('.')}.{suggested}"
        text = f"{first}\n{rest}" if rest else first
    return with_connection(as_typed(text, options), typed)
