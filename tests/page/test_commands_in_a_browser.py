"""Tests that the commands on the page reach the page's own broker, and that a shell parses them as intended."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from playwright.sync_api import Browser, Page, expect

from tests.page.opened import opened
from tests.support.broker_process import BrokerProcess

ODD = "it's $(touch here); `id`"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    settings = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data", settings) as running:
        assert isinstance(running, BrokerProcess)
        yield running


def shown(page: Page, button: str) -> str:
    """Clicks a button and returns the command in its dialog."""
    page.get_by_role("button", name=button).first.click()
    text = page.locator("dialog code").last.inner_text()
    page.get_by_role("button", name="Close").click()
    return str(text)


def paste(text: str) -> None:
    """Runs a command in a shell."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["sh", "-c", text], env={**os.environ, "PATH": path}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{text}: {done.stderr}"


def test_a_command_names_the_address_of_the_broker(browser: Browser, broker: BrokerProcess) -> None:
    page = opened(browser, broker.ready["http_port"], "topics")
    command = f"odradek topics create orders --partitions 3 -b {broker.bootstrap.replace('127.0.0.1', 'localhost')}"
    expect(page.locator(".empty code")).to_have_text(command)
    paste(command)
    expect(page.locator("tbody")).to_contain_text("orders")
    page.close()


def test_an_id_of_any_characters_is_one_word_of_the_command(browser: Browser, broker: BrokerProcess) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": ODD})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("odd", b"1")
    assert producer.flush(30) == 0
    page = opened(browser, broker.ready["http_port"], "transactions")
    page.get_by_role("link", name=ODD).first.click()
    assert shown(page, "Abort…") == page.locator(".note code").inner_text()
    paste(page.locator(".note code").inner_text())
    expect(page.locator(".lead").first).to_have_text("No transaction since the last InitProducerId.")
    page.close()


@pytest.mark.parametrize(
    ("resource", "name", "pattern", "permission", "host"),
    [
        (ResourceType.TOPIC, "orders", ResourcePatternType.LITERAL, AclPermissionType.ALLOW, "*"),
        (ResourceType.GROUP, "read", ResourcePatternType.PREFIXED, AclPermissionType.DENY, "10.0.0.7"),
        (ResourceType.BROKER, "kafka-cluster", ResourcePatternType.LITERAL, AclPermissionType.ALLOW, "*"),
    ],
    ids=["topic", "group", "cluster"],
)
def test_the_command_removes_the_same_acl_as_the_button(
    browser: Browser,
    broker: BrokerProcess,
    resource: ResourceType,
    name: str,
    pattern: ResourcePatternType,
    permission: AclPermissionType,
    host: str,
) -> None:
    binding = AclBinding(resource, name, pattern, "User:bob jr", host, AclOperation.DESCRIBE, permission)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for future in admin.create_acls([binding]).values():
        future.result(30)
    page = opened(browser, broker.ready["http_port"], "acls")
    paste(shown(page, "Remove…"))
    expect(page.locator(".empty")).to_contain_text("There are none yet.")
    page.close()


def test_the_command_removes_the_same_quota_as_the_button(browser: Browser, broker: BrokerProcess) -> None:
    paste(f"odradek quotas set --user 'bob jr' --client-defaults producer_byte_rate=1000 -b {broker.bootstrap}")
    page = opened(browser, broker.ready["http_port"], "quotas")
    paste(shown(page, "Remove…"))
    expect(page.locator(".empty")).to_contain_text("There are none yet.")
    page.close()


def test_a_cluster_of_a_test_has_another_address(browser: Browser, tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", {"odradek.control.enable": "true"}) as running:
        assert isinstance(running, BrokerProcess)
        page = opened(browser, running.ready["http_port"], "topics?cluster=default")
        expect(page.locator(".empty code")).to_have_text("odradek topics create orders --partitions 3 -b HOST:PORT")
        page.close()
