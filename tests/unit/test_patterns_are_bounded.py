"""Tests that every use of Python's `re`, which can run forever on a text of forty characters, is listed here with an
explanation of why its time is bounded.

Patterns from outside, and patterns in settings that are matched against data from clients, use
`odradek.broker.patterns.re2`. A new use of `re`, or a changed pattern, fails the test until its row explains why the
time is bounded. Consider who writes the pattern, who writes the text, and how long a text that almost matches can take.
"""

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FUNCTIONS = {"compile", "match", "fullmatch", "search", "sub", "subn", "split", "findall", "finditer"}
OF_FNMATCH = {"fnmatch", "fnmatchcase", "translate", "filter"}


def uses() -> Iterator[tuple[str, str]]:
    """Yields the file and the pattern of each use of `re` and `fnmatch` in the product. If the pattern is not a
    literal, yields the source of its expression."""
    for path in sorted([*(ROOT / "odradek").rglob("*.py"), *(ROOT / "pyspark_odradek").rglob("*.py")]):
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Call(ast.Attribute(ast.Name("re"), name), [pattern, *_]) if name in FUNCTIONS:
                    yield str(path.relative_to(ROOT)), shown(pattern)
                case ast.Call(ast.Name(name) | ast.Attribute(ast.Name("fnmatch"), name), [_, pattern, *_]) if (
                    name in OF_FNMATCH and "fnmatch" in path.read_text()
                ):
                    yield str(path.relative_to(ROOT)), shown(pattern)
                case ast.ImportFrom("re" | "regex", names):
                    yield str(path.relative_to(ROOT)), f"from re import {', '.join(each.name for each in names)}"
                case ast.Import(names) if any(each.asname and each.name in ("re", "regex") for each in names):
                    yield str(path.relative_to(ROOT)), "import re as another name"


def shown(pattern: ast.expr) -> str:
    if isinstance(pattern, ast.Constant):
        return pattern.value.decode() if isinstance(pattern.value, bytes) else str(pattern.value)
    return f"expression {ast.unparse(pattern)}"


# Reasons why a pattern is harmless: who can write the pattern and the text, and who would have to wait.
OWN = "pattern and text are our own: schemas, assets of the page, names of files that we have made"
OWN_PROCESS = "a command, client or job of the person who wrote the pattern: it keeps nobody else waiting"
ADMINISTRATOR = "the text is a setting of the broker, and whoever may change it may also stop the broker"
COMPILED_ONLY = "compiled to see whether it is valid, and never matched"
FIXED_LENGTH = "each repetition has a bound"
ONE_PASS = (
    "after each repetition comes a character that the repetition cannot match, or the end of the text: if the text"
    " does not match, backtracking fails at once at each character, in one pass"
)

USES: Mapping[str, Mapping[str, str]] = {
    "odradek/broker/control/clusters/chosen_listeners.py": {
        "[A-Za-z][A-Za-z0-9_]*": ONE_PASS,
        "[^\\s\\\"'\\\\=;/,\\x00-\\x1f]+": ONE_PASS,
    },
    "odradek/broker/control/faults/edits.py": {
        r"[A-Za-z]\w*|\d+|\*": ONE_PASS,
        r"[A-Za-z]\w*(\[(\d{1,9}|\*)\])?(\.([A-Za-z]\w*(\[(\d{1,9}|\*)\])?|\d{1,9}|\*))*": ONE_PASS,
    },
    "odradek/broker/control/faults/rule_json.py": {
        r"([A-Za-z][A-Za-z0-9_]*)\s*(==|!=|<=|>=|<|>)\s*(\S.*)": ONE_PASS,
        r"(\d{1,5})(?:-(\d{1,5})|(\+))?": FIXED_LENGTH,
    },
    "odradek/broker/configuration/topic_settings.py": {
        (
            r"(?P<sign>[-+]?)P(?=.)(?:(?P<days>[-+]?\d+)D)?(?:T(?=.)(?:(?P<hours>[-+]?\d+)H)?(?:(?P<minu"
            r"tes>[-+]?\d+)M)?(?:(?P<seconds>[-+]?\d+)(?:[.,](?P<fraction>\d{0,9}))?S)?)?"
        ): ONE_PASS,
        "([0-9]+:[0-9]+)?": ONE_PASS,
    },
    "odradek/broker/http/page/document.py": {
        r'^import (?P<names>\{[^}]*\}) from "(?P<path>[^"]+)";$': OWN,
        r"^export const (?P<names>\w+|\{[^}]*\})": OWN,
    },
    "odradek/broker/http/page/served.py": {"[0-9]+": ONE_PASS},
    "odradek/broker/handlers/cluster/features.py": {
        r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?": ONE_PASS,
    },
    "odradek/broker/metadata/config_rules.py": {
        r"listener\.name\.[^.]*\..+": ONE_PASS,
        "expression expression.strip()": COMPILED_ONLY,
    },
    "odradek/broker/metadata/files.py": {
        r"(\d{20})-(\d{10})\.checkpoint": OWN,
    },
    "odradek/broker/metadata/topic_names.py": {
        "[a-zA-Z0-9._-]+": ONE_PASS,
    },
    "odradek/broker/security/sasl/oauthbearer.py": {
        (
            "n,(?:a=(?P<authzid>(?:[\x01-\x7f](?<![=,])|=2C|=3D)+))?,\x01(?P<pairs>(?:"
            "[A-Za-z]+=[!-~ \t\r\n]+\x01)*)\x01"
        ): ONE_PASS,
        r"(?P<scheme>\w+) +(?P<token>[-_~+/.a-zA-Z0-9]+=*)": ONE_PASS,
        "[A-Za-z0-9_-]*={0,2}": ONE_PASS,
    },
    "odradek/broker/security/tls/principals.py": {
        "expression RULE": ADMINISTRATOR,
        r"expression f'\\s*({RULE})\\s*(?:,\\s*|$)'": ADMINISTRATOR,
        r"\\(.)|\$(\d+)": ADMINISTRATOR,
        r"\(\?[a-zA-Z-]*": ADMINISTRATOR,
    },
    "odradek/broker/shares/core/state.py": {
        r"([\w-]{22})(?:==)?": FIXED_LENGTH,
        "[+-]?[0-9]{1,10}": FIXED_LENGTH,
    },
    "odradek/tools/commands/topics.py": {
        "expression text": OWN_PROCESS,
    },
    "odradek/tools/container/kafka_tools.py": {
        r"[^,\[]+(?:\[[^\]]*\])?": OWN_PROCESS,
    },
    "odradek/tools/container/other_images.py": {
        r"(SCRAM-SHA-(?:256|512))=\[([^\]]*)\]": OWN_PROCESS,
        "SASL_(SSL|PLAINTEXT)": OWN_PROCESS,
        "SASL___(SSL|PLAINTEXT)": OWN_PROCESS,
        "SCRAM__SHA__(256|512)": OWN_PROCESS,
        "[,;]": OWN_PROCESS,
    },
    "odradek/client/common/values.py": {
        r"(0|[1-9]\d{0,18}):(0|[1-9]\d{0,4})": OWN_PROCESS,
    },
    "odradek/client/security/sasl.py": {
        "[A-Za-z]+": OWN_PROCESS,
        "[!-~ \t\r\n]+": OWN_PROCESS,
    },
    "odradek/client/sharing/acquired.py": {
        r"[\x00-\x04]+": OWN_PROCESS,
        r"[\x01-\x04]": OWN_PROCESS,
        r"[\xff\xfe\xfa]+": OWN_PROCESS,
        r"[^\x00]+": OWN_PROCESS,
    },
    "odradek/files/names.py": {
        r"(?P<topic>[A-Za-z0-9._-]+)-(?P<partition>\d+)": OWN,
        r".+\.[0-9a-f]{32}-delete": OWN,
    },
    "odradek/files/offline/directories.py": {
        r"\d{20}\.log(\.swap)?": OWN_PROCESS,
        "[a-z][a-z0-9+.-]*://": OWN_PROCESS,
    },
    "odradek/protocol/decoded/json_text.py": {
        (
            '[ \\t\\n\\r]*+(?:([{}\\[\\],:])|("[^"\\\\\\x00-\\x1f]*+(?:\\\\(?:["\\\\/b'
            'fnrt]|u[0-9a-fA-F]{4})[^"\\\\\\x00-\\x1f]*+)*+")|(?:-?(?:0|[1-9]'
            "[0-9]*+)(?:\\.[0-9]++)?+(?:[eE][+-]?[0-9]++)?+|true|false|null)(?![0-9a-zA-Z.+-]))"
        ): ONE_PASS,  # this pattern is also possessive
    },
    "odradek/protocol/java_properties.py": {
        (
            '(?P<skipped>\\s+|//[^\\n]*|/\\*.*?\\*/)\n      | "(?P<double>(?:[^"\\\\\\n]|\\\\.)*)"\n      | \'(?P<s'
            "ingle>(?:[^'\\\\\\n]|\\\\.)*)'\n      | (?P<bare>[^\\s\"'=;/]+)\n      | (?P<mark>[=;])"
        ): ADMINISTRATOR,
        r"\\([0-3]?[0-7]{1,2}|.)": ADMINISTRATOR,
        r"user_\w+|username|password|\w+Module": ADMINISTRATOR,
    },
    "odradek/protocol/schema.py": {
        "([A-Z]+)([A-Z][a-z])": OWN,
        "([a-z0-9])([A-Z])": OWN,
    },
    "odradek/protocol/scram.py": {
        (
            "expression f'n,(?:a=(?P<authzid>{_NAME}))?,(?P<bare>{_RESERVED}n=(?P<name>{_NAME}),r=(?P<n"
            "once>{_NONCE}){_EXTENSIONS})'"
        ): ONE_PASS,
        (
            "expression f'{_RESERVED}r=(?P<nonce>{_NONCE}),s=(?P<salt>{_BASE64}),i=(?P<iterations>[0-9]+){_EXTENSIONS}'"
        ): ONE_PASS,
        (
            "expression f'(?P<unproven>c=(?P<channel>{_BASE64}),r=(?P<nonce>{_NONCE}){_EXTENSIONS}),p=("
            "?P<proof>{_BASE64})'"
        ): ONE_PASS,
        "expression f'(?:e=(?P<error>{_VALUE})|v=(?P<signature>{_BASE64})){_EXTENSIONS}'": ONE_PASS,
    },
    "odradek/broker/security/acl/address_ranges.py": {
        r"([0-9]{1,3})\.([0-9]{1,3})\.([0-9]{1,3})\.([0-9]{1,3})/([0-9]{1,2})": FIXED_LENGTH,
        r"[0-9]{1,3}": FIXED_LENGTH,
    },
    "odradek/seeds/tree.py": {
        "\n": ONE_PASS,
        "[ \\t\\r\\n]*": ONE_PASS,
    },
    "odradek/spark/files/plan.py": {
        "expression choice.pattern": OWN_PROCESS,
    },
    "odradek/spark/jobs/inputs.py": {
        r"(\[[^\]]+\]|[^:\s]+):\d+": OWN_PROCESS,
    },
    "odradek/spark/jobs/session.py": {
        r"^(?:[\w.]*odradek[\w.]*|pyspark\.errors[\w.]*|TimeoutError|\w*Error|\w*Exception): (.+)$": OWN_PROCESS,
    },
    "odradek/spark/names.py": {
        r"(?P<sink>.+)\.t\.(?P<run>[^.]*)\.(?P<batch>\d+)\.(?P<partition>\d+)\.(?P<attempt>\d+)\.[^.]+": OWN_PROCESS,
    },
    "odradek/spark/offsets.py": {
        "expression options.pattern": OWN_PROCESS,
    },
    "odradek/spark/options.py": {
        r"\s*(\d+)\s*([a-z]*)\s*": OWN_PROCESS,
    },
    "odradek/testing/judge/rules/versions.py": {
        r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?": OWN_PROCESS,
    },
    "odradek/tools/commands/configs.py": {
        r"\s*([^=,\s]+)\s*=\s*(?:\[([^\]]*)\]|([^,]*))\s*(?:,|$)": OWN_PROCESS,
    },
    "odradek/tools/commands/consume.py": {
        r"beginning|earliest|end|latest|stored|-?\d+|[se]@\d+": OWN_PROCESS,
    },
    "odradek/tools/commands/groups.py": {
        r"([^:]+)(?::(\d+(?:,\d+)*))?": OWN_PROCESS,
    },
    "odradek/tools/commands/parsing.py": {
        "expression OPTION": OWN,
    },
    "odradek/tools/commands/replay.py": {
        "expression pattern.replace('[', '[[]')": OWN_PROCESS,
    },
    "odradek/tools/commands/suggestions.py": {
        r"[Uu]nknown [a-z ]*config\w*(?: name)?: ([\w.-]+)": OWN_PROCESS,
    },
    "odradek/tools/commands/target.py": {
        "expression SECTION": OWN_PROCESS,
    },
    "odradek/tools/commands/typed_names.py": {
        r"`(odradek (?!serve\b|certs\b)[^`]+)`": OWN_PROCESS,
        r"expression '\\b(?:' + LONGEST_FIRST + ')'": OWN,
    },
    "odradek/tools/inspect/command.py": {
        (
            r"(?P<offset>\d{20})\.(?P<kind>log|index|timeindex|txnindex|snapshot)(\.deleted|\.cleaned|\."
            "swap)?"
        ): OWN_PROCESS,
        r"\d{20}-\d{10}\.checkpoint(\.deleted)?": OWN_PROCESS,
        r"(?P<topic>.+)-\d+(\.[0-9a-f]{32}-(delete|stray))?": OWN_PROCESS,
    },
}


def test_every_use_of_a_backtracking_matcher_is_known_to_be_bounded() -> None:
    found: dict[str, set[str]] = {}
    for path, pattern in uses():
        found.setdefault(path, set()).add(pattern)
    assert found == {path: set(rows) for path, rows in USES.items()}


def test_patterns_from_clients_are_not_given_to_a_backtracking_matcher() -> None:
    """Checks that a pattern computed by the broker at run time is never matched, or is matched only against
    settings."""
    expressions = {
        (path, why)
        for path, rows in USES.items()
        for pattern, why in rows.items()
        if pattern.startswith("expression ") and not pattern.startswith("expression f'")
    }
    assert {why for path, why in expressions if path.startswith("odradek/broker/")} <= {ADMINISTRATOR, COMPILED_ONLY}
