"""Tests that a seed can be written in YAML or JSON, and that an error names the line and the field."""

import json

import pytest

from odradek.protocol.acls import Operation, PatternType, Permission, ResourceType
from odradek.protocol.scram import ScramMechanism
from odradek.seeds.document import parse_seed
from odradek.seeds.plan import (
    DEFAULT,
    Place,
    SeedAcl,
    SeedError,
    SeedGroup,
    SeedOffset,
    SeedPlan,
    SeedRecord,
    SeedTopic,
    SeedUser,
)

YAML = """\
topics:
  - name: orders
    partitions: 6
    settings:
      cleanup.policy: compact
      retention.ms: 1000
      preallocate: false
    records:
      - key: a
        value: {id: 1, note: "ü"}
        timestamp: 2026-01-01T00:00:00Z
        headers: {trace: [x, y], empty: null}
      - {key_base64: AAE=, value: null, timestamp: 5, partition: 2}
  - name: audit
groups:
  - name: billing
    offsets: {orders: {0: 1, 2: 3}}
users:
  - {name: alice, password: secret}
  - {name: bob, password: secret, mechanism: SCRAM-SHA-256, iterations: 8192}
acls:
  - {topic: ord, pattern: prefixed, principal: "User:alice", operations: [read, DESCRIBE_CONFIGS]}
  - {cluster: true, principal: "User:bob", operations: alter, permission: deny, host: 10.0.0.1}
"""


def test_a_document_becomes_a_plan_whose_parts_know_their_line_and_field() -> None:
    first = SeedRecord(
        key=b"a",
        value='{"id":1,"note":"ü"}'.encode(),
        headers=(("trace", b"x"), ("trace", b"y"), ("empty", None)),
        timestamp_ms=1_767_225_600_000,
        place=Place("seed.yaml", 9, "topics[0].records[0]"),
    )
    second = SeedRecord(b"\x00\x01", None, (), 5, 2, Place("seed.yaml", 13, "topics[0].records[1]"))
    settings = (("cleanup.policy", "compact"), ("retention.ms", "1000"), ("preallocate", "false"))
    assert parse_seed(YAML, "seed.yaml") == SeedPlan(
        topics=(
            SeedTopic("orders", 6, DEFAULT, settings, (first, second), Place("seed.yaml", 2, "topics[0]")),
            SeedTopic("audit", place=Place("seed.yaml", 14, "topics[1]")),
        ),
        groups=(
            SeedGroup(
                "billing",
                (
                    SeedOffset("orders", 0, 1, Place("seed.yaml", 17, "groups[0].offsets.orders.0")),
                    SeedOffset("orders", 2, 3, Place("seed.yaml", 17, "groups[0].offsets.orders.2")),
                ),
                Place("seed.yaml", 16, "groups[0]"),
            ),
        ),
        users=(
            SeedUser("alice", "secret", ScramMechanism.SHA_512, 4096, Place("seed.yaml", 19, "users[0]")),
            SeedUser("bob", "secret", ScramMechanism.SHA_256, 8192, Place("seed.yaml", 20, "users[1]")),
        ),
        acls=(
            SeedAcl(
                ResourceType.TOPIC,
                "ord",
                "User:alice",
                Operation.READ,
                pattern_type=PatternType.PREFIXED,
                place=Place("seed.yaml", 22, "acls[0].operations[0]"),
            ),
            SeedAcl(
                ResourceType.TOPIC,
                "ord",
                "User:alice",
                Operation.DESCRIBE_CONFIGS,
                pattern_type=PatternType.PREFIXED,
                place=Place("seed.yaml", 22, "acls[0].operations[1]"),
            ),
            SeedAcl(
                ResourceType.CLUSTER,
                "kafka-cluster",
                "User:bob",
                Operation.ALTER,
                Permission.DENY,
                host="10.0.0.1",
                place=Place("seed.yaml", 23, "acls[1].operations"),
            ),
        ),
    )


def test_json_says_the_same_as_yaml() -> None:
    document = {"topics": [{"name": "a", "partitions": 2, "records": [{"key": 'k\u00fc"', "value": [1, 2.5, True]}]}]}
    text = json.dumps(document, indent=1)
    in_json, in_yaml = parse_seed(text, "s.json"), parse_seed(text, "s.yaml")
    record = SeedRecord('kü"'.encode(), b"[1,2.5,true]", place=Place("s.json", 7, "topics[0].records[0]"))
    assert in_json.topics == (SeedTopic("a", 2, records=(record,), place=Place("s.json", 3, "topics[0]")),)
    assert repr(in_yaml) == repr(in_json).replace("s.json", "s.yaml")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "s.yaml:1: the document is empty"),
        (
            "topics:\n- name: a\n  partitions: x\n",
            "s.yaml:3: topics[0].partitions: partitions must be a number from 1 to",
        ),
        (
            "topics:\n- name: a\n  partitions: true\n",
            "s.yaml:3: topics[0].partitions: partitions must be a number from 1 to",
        ),
        ("topics:\n- partitions: 1\n", "s.yaml:2: topics[0]: name is missing"),
        ("topics:\n- name: ''\n", "s.yaml:2: topics[0].name: name is empty"),
        ("topics:\n- name: 5\n", "s.yaml:2: topics[0].name: name must be a string"),
        ("topics:\n- name: a\n- name: a\n", "s.yaml:3: topics[1]: the topic a is seeded twice"),
        ("topics:\n- name: a\n  name: b\n", "s.yaml:3: topics[0].name: the field is given twice"),
        ("topics: {a: 1}\n", "s.yaml:1: topics: topics must be a list"),
        ("topics:\n- name: a\n  partition: 1\n", "s.yaml:3: topics[0].partition: there is no such field"),
        ("topics:\n- name: a\n  settings: {x: [1]}\n", "s.yaml:3: topics[0].settings.x: x must be a string"),
        (
            "topics:\n- {name: a, records: [{timestamp: soon}]}\n",
            "records[0].timestamp: timestamp must be a number of milliseconds",
        ),
        ("topics:\n- {name: a, records: [{value: .nan}]}\n", "records[0].value: JSON supports neither NaN"),
        ("topics:\n- {name: a, records: [{value_base64: '*'}]}\n", "value_base64: value_base64 must be base64"),
        ("topics:\n- {name: a, records: [{key: a, key_base64: AA==}]}\n", "a record has either key or key_base64"),
        ("groups:\n- name: g\n", "s.yaml:2: groups[0]: offsets is missing"),
        ("groups:\n- {name: g, offsets: {a: {x: 1}}}\n", "groups[0].offsets.a.x: write offsets as"),
        (
            "users:\n- {name: u, password: p, mechanism: MD5}\n",
            "users[0].mechanism: mechanism must be SCRAM-SHA-256 or",
        ),
        ("acls:\n- {principal: 'User:a', operations: read}\n", "s.yaml:2: acls[0]: an ACL needs exactly one resource"),
        (
            "acls:\n- {topic: t, principal: 'User:a', operations: any}\n",
            "operations: operations must be one of ALL, READ,",
        ),
        ("topics: [\n", "s.yaml:2: this is not YAML: "),
        ("a: &a [*a]\n", "s.yaml:1: no value before this line has the anchor &a"),
    ],
)
def test_an_error_in_yaml_names_line_and_field(text: str, complaint: str) -> None:
    with pytest.raises(SeedError) as raised:
        parse_seed(text, "s.yaml")
    assert complaint in str(raised.value)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (
            '{"topics": [\n {"name": "a",\n "partitions": "x"}]}',
            "s.json:3: topics[0].partitions: partitions must be a number",
        ),
        ('{"topics": [\n,', "s.json:2: this is not JSON: Expecting value"),
        ('{"topics":\n NaN}', "s.json:2: NaN is not JSON"),
        ('{"users": [],\n"users": []}', "s.json:2: users: the field is given twice"),
        ('{"users": []\n"acls": []}', "s.json:2: a comma or a closing brace is missing"),
        ('{"users": [1\n2]}', "s.json:2: a comma or a closing bracket is missing"),
        ('{"users"\n[]}', "s.json:2: a colon is missing"),
        ("{\n5: 1}", "s.json:2: the name of a field must be a string"),
        ("{\n[]: 1}", "s.json:2: the name of a field must be a string"),
        ("{}\n{}", "s.json:2: nothing may follow the document"),
        ("", "s.json:1: this is not JSON"),
        ("[]", "s.json:1: the document must be an object with the fields schemas, topics, groups, users, acls"),
        ("[" * 100_000, "nested more than 50 levels deep"),
    ],
)
def test_an_error_in_json_names_line_and_field(text: str, complaint: str) -> None:
    with pytest.raises(SeedError) as raised:
        parse_seed(text, "s.json")
    assert complaint in str(raised.value)


def test_aliases_of_yaml_cannot_make_a_large_tree_of_a_small_file() -> None:
    rows = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    rows += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    with pytest.raises(SeedError) as raised:
        parse_seed("\n".join(rows), "s.yaml")
    assert str(raised.value) == "s.yaml:5: a4[7]: the aliases of the document expand to more than 100,000 values"


def test_an_alias_stands_for_the_value_of_the_anchor_before_it_at_its_own_place() -> None:
    text = """\
topics:
- name: a
  settings: &settings {retention.ms: &time 1000}
  records: [&record {key: &name k}, *record]
- {name: *name, settings: *settings, partitions: *time}
- {name: x, settings: &settings {retention.ms: true}}
- name: b
  settings: *settings
"""
    first, second, third, fourth = parse_seed(text, "s.yaml").topics
    assert first.records == (
        SeedRecord(b"k", place=Place("s.yaml", 4, "topics[0].records[0]")),
        SeedRecord(b"k", place=Place("s.yaml", 4, "topics[0].records[1]")),
    )
    assert (second.name, second.settings, second.partitions) == ("k", first.settings, 1000)
    assert third.settings == fourth.settings == (("retention.ms", "true"),)
    wrong = "topics:\n- name: &name a\n- name: b\n  settings: *name\n"
    with pytest.raises(SeedError, match=r"^s\.yaml:4: topics\[1\]\.settings: settings must be an object$"):
        parse_seed(wrong, "s.yaml")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("topics:\n- *a\n", "s.yaml:2: no value before this line has the anchor &a"),
        ("topics:\n- &a [*a]\n", "s.yaml:2: no value before this line has the anchor &a"),
        ("topics:\n- {? *a : 1}\n", "s.yaml:2: topics[0]: the name of a field must be a string"),
        ("topics: []\n---\ntopics: []\n", "s.yaml:2: nothing may follow the document"),
        ("# nothing\n", "s.yaml:1: the document is empty"),
        ("topics:\n- name: !!bool yea\n", "s.yaml:2: topics[0].name: 'yea' does not fit the tag !!bool"),
        ("topics:\n- name: !!int ''\n", "s.yaml:2: topics[0].name: '' does not fit the tag !!int"),
        ("topics:\n- name: !!float _\n", "s.yaml:2: topics[0].name: '_' does not fit the tag !!float"),
        ("topics:\n- name: \ud800\n", "s.yaml: this is not YAML: "),
        (f"a: &a {'[' * 30}1{']' * 30}\nb: {'[' * 30}*a{']' * 30}\n", "is nested more than 50 levels deep"),
    ],
)
def test_a_wrong_alias_tag_or_document_of_yaml_is_refused_by_its_line(text: str, complaint: str) -> None:
    with pytest.raises(SeedError) as raised:
        parse_seed(text, "s.yaml")
    assert complaint in str(raised.value)


@pytest.mark.parametrize("opening", ["[", "{a: ", "- ", "? "])
def test_a_deeply_nested_document_of_yaml_does_not_end_the_process(opening: str) -> None:
    with pytest.raises(
        SeedError, match=r"^s.yaml:1: .* is nested more than 50 levels deep$|name of a field must be a string"
    ):
        parse_seed(opening * 250_000, "s.yaml")
