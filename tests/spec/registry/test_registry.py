"""Tests the core of the schema registry: versions, ids, deletion, levels, modes and references.

Source: the documentation of Confluent's Schema Registry API.
"""

import json
from typing import Any

import pytest

from odradek.broker.configuration.broker_settings import SCHEMA_LEVELS
from odradek.registry.avro_schemas import MAX_FIELDS
from odradek.registry.core import LATEST, Registration, Registry
from odradek.registry.errors import RegistryError
from odradek.registry.levels import LEVELS
from odradek.registry.records import RegistryRecord, SchemaRecord, decode, encode
from odradek.registry.schemas import Reference, SchemaText


def record(*fields: tuple[str, Any], name: str = "Order", **defaults: Any) -> SchemaText:
    """Returns the schema of an Avro record. A field has a default value if `defaults` contains its name."""
    rows: list[dict[str, Any]] = [{"name": field, "type": kind} for field, kind in fields]
    for row in rows:
        if row["name"] in defaults:
            row["default"] = defaults[row["name"]]
    return SchemaText("AVRO", json.dumps({"type": "record", "name": name, "fields": rows}))


V1 = record(("id", "long"))
V2 = record(("id", "long"), ("note", "string"), note="")
INCOMPATIBLE = record(("id", "long"), ("amount", "int"))


class Scene:
    """A registry that writes its records immediately. Tests can restart it from these records."""

    def __init__(self) -> None:
        self.registry = Registry()
        self.log: list[tuple[bytes, bytes | None]] = []

    def done(self, decided: Any) -> Any:
        """Writes and replays a decision's records. Returns the result of the request."""
        answer, records = decided if isinstance(decided, tuple) else (None, decided)
        for each in records:
            self.log.append(encode(each))
            self.registry.state.replay(each)
        return answer

    def register(self, subject: str, text: SchemaText, **fields: Any) -> int:
        return int(self.done(self.registry.register(subject, Registration(text, **fields))))

    def restart(self, *, compacted: bool = False) -> None:
        log = list({key: (key, value) for key, value in self.log}.values()) if compacted else self.log
        self.registry = Registry()
        for key, value in log:
            found: RegistryRecord | None = decode(key, value)
            if found is not None:
                self.registry.state.replay(found)


@pytest.fixture
def scene() -> Scene:
    return Scene()


def code(refused: pytest.ExceptionInfo[RegistryError]) -> int:
    return refused.value.code


def test_the_settings_offer_the_levels_of_the_registry() -> None:
    assert tuple(LEVELS) == SCHEMA_LEVELS


def test_a_schema_has_one_id_in_all_subjects_and_one_version_in_each(scene: Scene) -> None:
    assert scene.register("a-value", V1) == 1
    assert scene.register("a-value", V1) == 1
    assert scene.register("b-value", V1) == 1
    assert scene.register("b-value", V2) == 2
    assert scene.registry.numbers("a-value") == [1]
    assert scene.registry.numbers("b-value") == [1, 2]
    assert sorted(scene.registry.state.places_of(1)) == [("a-value", 1), ("b-value", 1)]


def test_white_space_and_the_order_of_attributes_make_no_new_schema(scene: Scene) -> None:
    scene.register("a", SchemaText("AVRO", '{"type": "record", "name": "R", "fields": [], "doc": "d"}'))
    assert scene.register("a", SchemaText("AVRO", '{ "doc":"d","fields":[],"name":"R","type":"record"}')) == 1


def test_an_incompatible_schema_is_refused_and_changes_nothing(scene: Scene) -> None:
    scene.register("a", V1)
    with pytest.raises(RegistryError, match=r"READER_FIELD_MISSING_DEFAULT_VALUE.*oldSchemaVersion: 1") as refused:
        scene.register("a", INCOMPATIBLE)
    assert code(refused) == 409
    assert scene.registry.numbers("a") == [1]


def test_the_level_of_a_subject_wins_over_the_level_of_all(scene: Scene) -> None:
    scene.register("a", V1)
    scene.done(scene.registry.set_level(None, "FORWARD"))
    assert scene.register("a", INCOMPATIBLE) == 2
    scene.done(scene.registry.set_level("a", "full"))
    assert scene.registry.level_of("a") == "FULL"
    with pytest.raises(RegistryError):
        scene.register("a", V1.__class__("AVRO", record(("other", "long")).text))
    assert scene.done(scene.registry.remove_level("a")) == "FULL"
    assert scene.registry.level_of("a") == "FORWARD"


def test_a_transitive_level_compares_with_every_version(scene: Scene) -> None:
    scene.done(scene.registry.set_level("a", "NONE"))
    scene.register("a", record(("id", "long"), ("old", "string")))
    scene.register("a", record(("id", "long")))
    new = record(("id", "long"), ("old", "int"), old=0)
    scene.done(scene.registry.set_level("a", "BACKWARD"))
    assert scene.registry.test("a", new, None) == []
    scene.done(scene.registry.set_level("a", "BACKWARD_TRANSITIVE"))
    assert "oldSchemaVersion: 1" in " ".join(scene.registry.test("a", new, None))


def test_a_subject_does_not_change_the_type_of_its_schemas(scene: Scene) -> None:
    scene.register("a", V1)
    with pytest.raises(RegistryError, match="The earlier schema is AVRO"):
        scene.register("a", SchemaText("JSON", "{}"))


def test_a_deleted_version_keeps_its_number_and_can_be_seen_when_asked_for(scene: Scene) -> None:
    scene.register("a", V1)
    scene.register("a", V2)
    assert scene.done(scene.registry.delete_version("a", LATEST, is_permanent=False)) == 2
    assert scene.registry.numbers("a") == [1]
    assert scene.registry.numbers("a", with_deleted=True) == [1, 2]
    assert scene.registry.numbers("a", deleted_only=True) == [2]
    assert scene.register("a", V2) == 2
    assert scene.registry.numbers("a") == [1, 3]


@pytest.mark.parametrize(
    ("is_deleted", "is_permanent", "expected"), [(False, True, 40407), (True, False, 40406)], ids=str
)
def test_a_version_is_deleted_softly_first_and_permanently_then(
    scene: Scene, is_deleted: bool, is_permanent: bool, expected: int
) -> None:
    scene.register("a", V1)
    if is_deleted:
        scene.done(scene.registry.delete_version("a", 1, is_permanent=False))
    with pytest.raises(RegistryError) as refused:
        scene.registry.delete_version("a", 1, is_permanent=is_permanent)
    assert code(refused) == expected


def test_a_subject_is_deleted_softly_first_and_permanently_then(scene: Scene) -> None:
    scene.register("a", V1)
    scene.register("a", V2)
    with pytest.raises(RegistryError) as refused:
        scene.registry.delete_subject("a", is_permanent=True)
    assert code(refused) == 40405
    assert scene.done(scene.registry.delete_subject("a", is_permanent=False)) == [1, 2]
    with pytest.raises(RegistryError) as refused:
        scene.registry.delete_subject("a", is_permanent=False)
    assert code(refused) == 40404
    assert scene.registry.subjects() == []
    assert scene.registry.subjects(deleted_only=True) == ["a"]
    assert scene.done(scene.registry.delete_subject("a", is_permanent=True)) == [1, 2]
    assert scene.registry.subjects(with_deleted=True) == []
    with pytest.raises(RegistryError) as refused:
        scene.registry.text_of_id(1)
    assert code(refused) == 40403


def test_an_id_is_not_given_again_after_a_permanent_deletion(scene: Scene) -> None:
    scene.register("a", V1)
    scene.done(scene.registry.delete_subject("a", is_permanent=False))
    scene.done(scene.registry.delete_subject("a", is_permanent=True))
    assert scene.register("a", V2) == 2


def test_the_settings_of_a_subject_go_with_its_last_version(scene: Scene) -> None:
    scene.register("a", V1)
    scene.done(scene.registry.set_level("a", "NONE"))
    scene.done(scene.registry.delete_version("a", 1, is_permanent=False))
    assert scene.registry.level_of("a") == "BACKWARD"


def test_a_referenced_version_cannot_be_deleted(scene: Scene) -> None:
    scene.register("address", record(("city", "string"), name="Address"))
    user = SchemaText("AVRO", record(("home", "Address"), name="User").text, (Reference("Address", "address", 1),))
    scene.register("user", user)
    assert scene.registry.referenced_by("address", 1) == [2]
    for refused_deletion in (
        lambda: scene.registry.delete_version("address", 1, is_permanent=False),
        lambda: scene.registry.delete_subject("address", is_permanent=False),
    ):
        with pytest.raises(RegistryError) as refused:
            refused_deletion()
        assert code(refused) == 42206
    scene.done(scene.registry.delete_subject("user", is_permanent=False))
    scene.done(scene.registry.delete_subject("user", is_permanent=True))
    assert scene.done(scene.registry.delete_subject("address", is_permanent=False)) == [1]


def test_a_reference_that_does_not_exist_is_refused(scene: Scene) -> None:
    with pytest.raises(RegistryError, match='No schema reference found for subject "address" and version 1') as refused:
        scene.register("user", SchemaText("AVRO", V1.text, (Reference("Address", "address", 1),)))
    assert code(refused) == 42201


def test_read_only_subjects_refuse_changes(scene: Scene) -> None:
    scene.register("a", V1)
    scene.done(scene.registry.set_mode("a", "READONLY", is_forced=False))
    for change in (
        lambda: scene.register("a", V2),
        lambda: scene.registry.delete_version("a", 1, is_permanent=False),
        lambda: scene.registry.set_level("a", "NONE"),
    ):
        with pytest.raises(RegistryError) as refused:
            change()
        assert code(refused) == 42205
    assert scene.register("b", V1) == 1


def test_import_keeps_ids_and_versions_and_needs_an_empty_subject(scene: Scene) -> None:
    with pytest.raises(RegistryError, match="not in import mode"):
        scene.register("a", V1, schema_id=7)
    scene.done(scene.registry.set_mode(None, "IMPORT", is_forced=False))
    assert scene.register("a", V1, schema_id=700, version=3) == 700
    assert scene.registry.version("a", 3).schema_id == 700
    with pytest.raises(RegistryError, match="Overwrite new schema with id 700"):
        scene.register("a", V2, schema_id=700)
    scene.done(scene.registry.set_mode(None, "READWRITE", is_forced=False))
    assert scene.register("a", V2) == 701
    with pytest.raises(RegistryError, match="found existing subjects"):
        scene.registry.set_mode(None, "IMPORT", is_forced=False)
    scene.done(scene.registry.set_mode(None, "IMPORT", is_forced=True))


def test_each_kind_of_missing_object_has_its_own_error_code(scene: Scene) -> None:
    scene.register("a", V1)
    for request, expected in (
        (lambda: scene.registry.version("b", 1), 40401),
        (lambda: scene.registry.version("a", 2), 40402),
        (lambda: scene.registry.text_of_id(9), 40403),
        (lambda: scene.registry.lookup("a", V2), 40403),
        (lambda: scene.registry.lookup("b", V1), 40401),
        (lambda: scene.registry.set_level("a", "SOMETIMES"), 42203),
        (lambda: scene.registry.set_mode("a", "ASLEEP", is_forced=False), 42204),
        (lambda: scene.registry.remove_mode("a"), 40409),
    ):
        with pytest.raises(RegistryError) as refused:
            request()
        assert code(refused) == expected


@pytest.mark.parametrize("compacted", [False, True], ids=["whole", "compacted"])
def test_a_restart_finds_everything_in_the_topic(scene: Scene, compacted: bool) -> None:
    scene.register("a", V1)
    scene.register("a", V2)
    scene.register("b", SchemaText("JSON", '{"type":"object"}'))
    scene.done(scene.registry.delete_version("a", 1, is_permanent=False))
    scene.done(scene.registry.set_level("b", "NONE"))
    scene.done(scene.registry.set_mode("b", "READONLY", is_forced=False))
    before = scene.registry.state
    scene.restart(compacted=compacted)
    assert scene.registry.state == before


def test_records_are_written_as_confluents_registry_writes_them(scene: Scene) -> None:
    scene.register("a", SchemaText("AVRO", '"string"'))
    scene.done(scene.registry.set_level(None, "FULL"))
    scene.done(scene.registry.delete_subject("a", is_permanent=False))
    assert scene.log == [
        (
            b'{"keytype":"SCHEMA","subject":"a","version":1,"magic":1}',
            b'{"subject":"a","version":1,"id":1,"schema":"\\"string\\"","deleted":false}',
        ),
        (b'{"keytype":"CONFIG","subject":null,"magic":0}', b'{"compatibilityLevel":"FULL"}'),
        (b'{"keytype":"DELETE_SUBJECT","subject":"a","magic":0}', b'{"subject":"a","version":1}'),
    ]


@pytest.mark.parametrize(
    "key",
    [
        *(b"{", b"{}", b"[]", b'{"keytype":"SCHEMA"}', None, b"[" * 100_000),
        b'{"keytype":"SCHEMA","subject":"a","version":1e999}',
        b'{"keytype":"CONFIG","subject":["a"]}',
        b'{"keytype":"MODE","subject":["a"]}',
        b'{"keytype":"DELETE_SUBJECT","subject":"\\ud83d"}',
    ],
)
def test_a_record_that_cannot_be_read_is_named(key: bytes | None) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  # the caller logs the message
        decode(key, b"{}")


def test_a_schema_with_half_a_surrogate_pair_cannot_be_read() -> None:
    key = b'{"keytype":"SCHEMA","subject":"a","version":1}'
    value = rb'{"id":1,"schema":"%s"}'
    with pytest.raises(ValueError, match="half a surrogate pair"):
        decode(key, value % rb"\ud83d")
    whole_pair, escaped = rb"\ud83d\ude00", rb"\\ud83d"
    for text, expected in ((whole_pair, "\U0001f600"), (escaped, r"\ud83d")):
        assert decode(key, value % text) == SchemaRecord("a", 1, 1, SchemaText("AVRO", expected))


@pytest.mark.parametrize("level", [b'"FULLY"', b"5", b'["FULL"]'])
def test_a_level_that_is_unknown_is_not_replayed(level: bytes) -> None:
    with pytest.raises(ValueError, match=r"[lL]evel"):
        decode(b'{"keytype":"CONFIG","subject":null}', b'{"compatibilityLevel":' + level + b"}")


def test_a_key_of_an_unknown_kind_changes_nothing() -> None:
    assert decode(b'{"keytype":"NOOP","magic":0}', None) is None


def test_a_permanent_deletion_that_karapace_wrote_has_an_empty_value() -> None:
    key = b'{"keytype":"SCHEMA","subject":"a","version":1,"magic":1}'
    assert decode(key, b"") == decode(key, None) == SchemaRecord("a", 1)


def test_fields_that_other_registries_add_to_a_record_are_ignored() -> None:
    key = b'{"magic":1,"version":1,"subject":"a","keytype":"SCHEMA"}'
    value = {
        "subject": "a",
        "version": 1,
        "id": 3,
        "guid": "g",
        "schemaType": "AVRO",
        "schema": '"int"',
        "ruleSet": None,
    }
    assert decode(key, json.dumps(value).encode()) == SchemaRecord("a", 1, 3, SchemaText("AVRO", '"int"'))


def chain(scene: Scene, length: int) -> SchemaText:
    """Registers a chain of record schemas, each of which refers to the previous one. Returns a schema that refers to
    the last one in the chain."""
    text = SchemaText("AVRO", '{"type":"record","name":"R0","fields":[]}')
    for number in range(1, length + 1):
        scene.register(f"r{number - 1}", text)
        fields = f'[{{"name":"f","type":"R{number - 1}"}}]'
        uses = Reference(f"R{number - 1}", f"r{number - 1}", 1)
        text = SchemaText("AVRO", f'{{"type":"record","name":"R{number}","fields":{fields}}}', (uses,))
    return text


def test_a_schema_beyond_a_limit_is_refused_by_name(scene: Scene) -> None:
    large = SchemaText("AVRO", '{"type":"fixed","size":1,"name":"' + "a" * 1_000_000 + '"}')
    with pytest.raises(RegistryError, match="it has 1000035 bytes, but at most 1000000 are allowed"):
        scene.register("a", large)
    with pytest.raises(RegistryError, match="its references are nested more than 100 levels deep, down to R0"):
        scene.register("a", chain(scene, 101))


def test_a_record_with_too_many_fields_is_refused_before_it_is_parsed(scene: Scene) -> None:
    def fields(count: int) -> list[dict[str, str]]:
        return [{"name": f"f{number}", "type": "int"} for number in range(count)]

    inner = {"type": "record", "name": "Wide", "fields": fields(MAX_FIELDS + 1)}
    for schema in (inner, {"type": "array", "items": ["null", inner]}):
        with pytest.raises(RegistryError, match="the record Wide has 10001 fields; the limit is 10000") as refused:
            scene.registry.register("wide", Registration(SchemaText("AVRO", json.dumps(schema))))
        assert code(refused) == 42201
