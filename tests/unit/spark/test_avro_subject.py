"""Tests how the versions of a subject become schemas for Spark. The tests do not need pyspark."""

from __future__ import annotations

import json
from typing import Any

import pytest

from odradek.client.schema_registry.address import RegistryAddress
from odradek.client.schema_registry.client import RegistryFailure, SchemaRegistryClient, SchemaRegistryError
from odradek.spark.avro_columns.subject import AvroSubject, SubjectError, read_subject

RECORD = '{"type": "record", "name": "Order", "fields": [{"name": "price", "type": "shop.Money"}]}'
MONEY = '{"type": "fixed", "name": "shop.Money", "size": 4}'


class Registry(SchemaRegistryClient):
    """A schema registry client that returns the given versions, which are identified by subject and version number."""

    def __init__(self, versions: dict[tuple[str, int], dict[str, Any]], deleted: tuple[int, ...] = ()) -> None:
        super().__init__(RegistryAddress("http://registry"))
        self._versions = versions
        self._deleted = deleted

    def ask(self, method: str, path: str, body: object = None) -> Any:
        place, _, query = path.partition("?")
        _, _, subject, _, *number = place.split("/")
        known = [each for name, each in self._versions if name == subject]
        if query != "deleted=true":
            known = [each for each in known if each not in self._deleted]
        if not known:
            raise SchemaRegistryError(f"Subject '{subject}' not found.", RegistryFailure.NOT_FOUND, 40401)
        if not number:
            return known
        chosen = known[-1] if number == ["latest"] else int(number[0])
        if chosen not in known:
            raise SchemaRegistryError(f"Version {chosen} not found.", RegistryFailure.NOT_FOUND, 40402)
        return {"subject": subject, "version": chosen, **self._versions[subject, chosen]}


def version(schema_id: int, schema: str, **more: object) -> dict[str, Any]:
    return {"id": schema_id, "schema": schema, **more}


def unwrapped(subject: AvroSubject) -> tuple[dict[int, object], object]:
    """Returns the writers' schemas by id, and the reader's schema. Each schema is unwrapped from the record that
    contains it."""
    writers = {each: json.loads(text)["fields"][0]["type"] for each, text in subject.writers.items()}
    return writers, json.loads(subject.reader)["fields"][0]["type"]


def test_all_versions_are_writers_and_the_latest_is_the_reader() -> None:
    found = Registry({("s", 1): version(4, '"int"'), ("s", 3): version(9, '"long"')})
    assert unwrapped(read_subject(found, "s")) == ({4: "int", 9: "long"}, "long")
    assert unwrapped(read_subject(found, "s", 1)) == ({4: "int", 9: "long"}, "int")


def test_a_softly_deleted_version_is_a_writer_and_no_reader() -> None:
    found = Registry({("s", 1): version(4, '"int"'), ("s", 2): version(9, '"long"')}, deleted=(2,))
    assert unwrapped(read_subject(found, "s")) == ({4: "int", 9: "long"}, "int")
    with pytest.raises(SubjectError, match=r"Version 2 not found\.$"):
        read_subject(found, "s", 2)


def test_references_become_part_of_the_schema() -> None:
    reference = [{"name": "shop.Money", "subject": "money", "version": 1}]
    found = Registry({("s", 1): version(2, RECORD, references=reference), ("money", 1): version(1, MONEY)})
    writers, reader = unwrapped(read_subject(found, "s"))
    assert writers == {2: reader}
    assert '"size": 4' in json.dumps(reader)


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (version(1, "{}", schemaType="JSON"), "version 1 of s has the type JSON"),
        (version(1, "{"), "version 1 of s is not an Avro schema"),
        (version(1, '"bytes"'), r"is the schema \"bytes\""),
        (version(1, '{"type": "bytes"}'), r"is the schema \"bytes\""),
    ],
)
def test_a_schema_that_is_no_avro_for_spark_is_refused_by_name(schema: dict[str, Any], message: str) -> None:
    with pytest.raises(SubjectError, match=message):
        read_subject(Registry({("s", 1): schema}), "s")


def test_a_decimal_in_bytes_is_accepted() -> None:
    decimal = '{"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}'
    assert read_subject(Registry({("s", 1): version(1, decimal)}), "s").writers
