"""Tests `odradek schemas` with the registry of a running broker."""

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.broker_process import IS_KAFKA, BrokerProcess
from tests.support.commands import command
from tests.support.reserved_port import ReservedPort

pytestmark = pytest.mark.skipif(IS_KAFKA, reason="Kafka has no registry")

SETTINGS = {"odradek.schema.registry.enable": "true", "odradek.schema.registry.port": "0"}
MONEY = {"type": "record", "name": "Money", "namespace": "shop", "fields": [{"name": "cents", "type": "long"}]}
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data", SETTINGS) as running:
        assert isinstance(running, BrokerProcess)
        yield f"http://127.0.0.1:{running.ready['schema_registry_port']}"


@pytest.fixture
def schemas(url: str) -> Run:
    """Returns a function that runs `odradek schemas` against the registry. The function fails unless the exit status is
    `status`."""

    def run(*words: str, stdin: str = "", status: int = 0) -> subprocess.CompletedProcess[str]:
        done = command("schemas", *words, "--registry", url, stdin=stdin)
        assert done.returncode == status, done.stdout + done.stderr
        return done

    return run


def order(*more: dict[str, Any]) -> str:
    return json.dumps({"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}, *more]})


NOTE = {"name": "note", "type": "string", "default": ""}
AMOUNT = {"name": "amount", "type": "int"}


def test_a_schema_is_registered_shown_and_listed(schemas: Run, tmp_path: Path) -> None:
    file = tmp_path / "order.avsc"
    file.write_text(order(), encoding="utf-8")
    first = schemas("register", "orders-value", str(file)).stdout
    assert first.startswith("orders-value: version 1, id ")
    assert schemas("register", "orders-value", str(file)).stdout == first, "the same schema is the same version"
    assert "version 2" in schemas("register", "orders-value", "-", stdin=order(NOTE)).stdout
    shown = json.loads(schemas("show", "orders-value", "--json").stdout)
    assert (shown["version"], shown["versions"], shown["type"]) == (2, [1, 2], "AVRO")
    assert json.loads(shown["schema"])["fields"][1]["name"] == "note"
    head, versions, _, *text = schemas("show", "orders-value", "--version", "1").stdout.splitlines()
    assert head == f"orders-value: version 1, id {first.split()[-1]}, AVRO"
    assert versions == "all versions: 1, 2"
    assert json.loads("\n".join(text))["name"] == "Order"
    (row,) = [each for each in json.loads(schemas("list", "--json").stdout) if each["subject"] == "orders-value"]
    assert row == {"subject": "orders-value", "type": "AVRO", "latest_version": 2, "id": shown["id"]}


def test_a_check_names_the_incompatible_field_and_registers_nothing(schemas: Run) -> None:
    schemas("register", "checked-value", "-", stdin=order())
    assert "is compatible" in schemas("check", "checked-value", "-", stdin=order(NOTE)).stdout
    refused = schemas("check", "checked-value", "-", stdin=order(AMOUNT), status=6).stdout
    assert "is not compatible" in refused
    assert "amount" in refused
    assert "incompatible" in schemas("register", "checked-value", "-", stdin=order(AMOUNT), status=1).stderr
    assert "all versions: 1\n" in schemas("show", "checked-value").stdout


def test_a_schema_may_use_another_one_by_reference(schemas: Run) -> None:
    schemas("register", "money", "-", stdin=json.dumps(MONEY))
    price = {"name": "price", "type": "shop.Money"}
    using = ("--reference", "shop.Money=money:1")
    schemas("register", "priced-value", "-", *using, stdin=order(price))
    assert "uses shop.Money: money, version 1" in schemas("show", "priced-value").stdout
    wrong = schemas("register", "priced-value", "-", "--reference", "money", stdin=order(price), status=2)
    assert "'money' is not NAME=SUBJECT:VERSION" in wrong.stderr


def test_a_file_of_protobuf_is_known_by_its_name_and_a_json_schema_needs_its_type(schemas: Run, tmp_path: Path) -> None:
    file = tmp_path / "click.proto"
    file.write_text('syntax = "proto3"; message Click { int64 at = 1; }', encoding="utf-8")
    schemas("register", "clicks-value", str(file))
    assert "message Click {" in schemas("show", "clicks-value").stdout
    audit = json.dumps({"type": "object", "properties": {"who": {"type": "string"}}})
    refused = schemas("register", "audit-value", "-", stdin=audit, status=1)
    assert "Check the file and --type" in refused.stderr
    schemas("register", "audit-value", "-", "--type", "JSON", stdin=audit)
    assert json.loads(schemas("show", "audit-value", "--json").stdout)["type"] == "JSON"


def test_missing_subjects_versions_and_files_are_named(schemas: Run) -> None:
    schemas("register", "there-value", "-", stdin=order())
    missing = schemas("show", "nowhere-value", status=4).stderr
    assert "nowhere-value" in missing
    assert "`odradek schemas list`" in missing
    assert "Version 9 not found" in schemas("show", "there-value", "--version", "9", status=4).stderr
    assert "no-file.avsc" in schemas("register", "there-value", "no-file.avsc", status=1).stderr


def test_an_unreachable_or_missing_registry_differs_from_a_refusal(tmp_path: Path) -> None:
    reserved = ReservedPort()
    nobody = command("schemas", "list", "--registry", f"http://127.0.0.1:{reserved.number}")
    assert nobody.returncode == 3
    assert "no schema registry can be reached" in nobody.stderr
    assert "odradek serve --schema-registry" in nobody.stderr
    with BrokerProcess(tmp_path / "data", {"odradek.http.port": "0"}) as broker:
        assert isinstance(broker, BrokerProcess)
        page = command("schemas", "list", "--registry", f"http://127.0.0.1:{broker.ready['http_port']}")
    assert page.returncode == 3
    assert "is not a schema registry" in page.stderr
    assert command("schemas", "list", "--registry", "ftp://x").returncode == 2


def test_the_user_logs_in_by_options_or_the_url(tmp_path: Path) -> None:
    jaas = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_admin="admin-secret";'
    settings = {
        **SETTINGS,
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": jaas,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:admin",
    }
    password = tmp_path / "password"
    password.write_text("admin-secret\n", encoding="utf-8")
    with BrokerProcess(tmp_path / "data", settings) as broker:
        assert isinstance(broker, BrokerProcess)
        host = f"127.0.0.1:{broker.ready['schema_registry_port']}"
        words = ("schemas", "register", "orders-value", "-")

        def at(url: str, *more: str) -> subprocess.CompletedProcess[str]:
            return command(*words, "--registry", url, *more, stdin='"int"')

        assert at(f"http://{host}").returncode == 5
        wrong = at(f"http://admin:wrong@{host}")
        assert (wrong.returncode, "wrong" in wrong.stderr) == (5, False), "no message contains the password"
        assert "does not accept this login" in wrong.stderr
        assert at(f"http://admin:admin-secret@{host}").returncode == 0
        assert at(f"http://{host}", "--user", "admin", "--password-file", str(password)).returncode == 0
        assert at(f"http://{host}", "--user", "admin").returncode == 2
