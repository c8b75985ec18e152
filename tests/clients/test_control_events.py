"""Tests the stream of server-sent events that reports client requests."""

from __future__ import annotations

import json
from http.client import HTTPConnection, HTTPResponse
from typing import Any

import pytest

from odradek.broker.network.recent_exchanges import MAX_EXCHANGES, SPARE_EXCHANGES
from odradek.protocol.messages.api_versions_request import ApiVersionsRequest
from odradek.protocol.messages.metadata_request import MetadataRequest
from odradek.testing.sync import Cluster, Odradek
from tests.support.wire import Wire

PATIENCE_S = 60


class Events:
    """A reader of the event stream."""

    def __init__(self, odradek: Odradek, kafka: Cluster, query: str = "", last: int | str | None = None) -> None:
        self._http = HTTPConnection(odradek.host, odradek.port, timeout=PATIENCE_S)
        headers = {"Accept": "text/event-stream"} | ({} if last is None else {"Last-Event-ID": str(last)})
        self._http.request("GET", f"/control/v1/clusters/{kafka.id}/requests{query}", headers=headers)
        self.response: HTTPResponse = self._http.getresponse()

    def next(self) -> dict[str, Any]:
        """Returns the fields of the next event, with decoded `data`, or an empty dict at the end of the stream."""
        found: dict[str, Any] = {}
        while (line := self.response.readline().decode().rstrip("\n")) != "":
            name, _, value = line.partition(": ")
            found[name] = json.loads(value) if name in ("data", "id") else value
        return found

    def close(self) -> None:
        self.response.close()
        self._http.close()


def test_each_exchange_is_reported_when_it_is_complete(odradek: Odradek, kafka: Cluster) -> None:
    events = Events(odradek, kafka)
    assert events.response.headers["Content-Type"] == "text/event-stream"
    with Wire(kafka.bootstrap, "a") as wire:
        wire.ask(ApiVersionsRequest(), 0)
        event = events.next()
        wire.ask(MetadataRequest(topics=[]), 12)
        more = events.next()
    assert (event["id"], more["id"]) == (1, 2)
    assert [event["data"], more["data"]] == kafka.requests()
    events.close()


def test_events_are_of_one_api_and_client(odradek: Odradek, kafka: Cluster) -> None:
    for client_id in ("a", "b"):
        with Wire(kafka.bootstrap, client_id) as wire:
            wire.ask(ApiVersionsRequest(), 0)
            wire.ask(MetadataRequest(topics=[]), 12)
    events = Events(odradek, kafka, "?api=Metadata&client_id=b")
    event = events.next()
    assert (event["id"], event["data"]["api"], event["data"]["client_id"]) == (4, "Metadata", "b")
    events.close()


def test_a_waiting_exchange_is_reported_after_later_ones_and_after_a_reconnect(
    odradek: Odradek, kafka: Cluster
) -> None:
    kafka.fault({"match": {"client_id": "waits"}, "do": {"hold": "h"}})
    events = Events(odradek, kafka)
    with Wire(kafka.bootstrap, "waits") as waiting, Wire(kafka.bootstrap, "goes") as going:
        waiting.send(ApiVersionsRequest(), 0)
        kafka.wait(hold="h")
        going.ask(ApiVersionsRequest(), 0)
        event = events.next()
        assert event["data"]["number"] == 2
        events.close()
        kafka.release("h")
        waiting.receive(ApiVersionsRequest.API_KEY, 0)
    again = Events(odradek, kafka, last=event["id"])
    assert [(each["data"]["number"], each["id"]) for each in (again.next(), again.next())] == [(1, 1), (2, 2)]
    again.close()


def test_a_held_request_is_reported_as_closed_when_its_client_disconnects(odradek: Odradek, kafka: Cluster) -> None:
    kafka.fault({"do": {"hold": "h"}})
    events = Events(odradek, kafka)
    with Wire(kafka.bootstrap, "gone") as wire:
        wire.send(ApiVersionsRequest(), 0)
        kafka.wait(hold="h")
    event = events.next()["data"]
    assert (event["closed"], event["answer"]) == (True, None)
    events.close()


def test_a_slow_reader_gets_the_number_of_events_that_it_has_missed(odradek: Odradek, kafka: Cluster) -> None:
    count = MAX_EXCHANGES + SPARE_EXCHANGES + 1
    with Wire(kafka.bootstrap, "a") as wire:
        for _ in range(count):
            wire.ask(MetadataRequest(topics=[]), 12)
    events = Events(odradek, kafka, last=0)
    missed = events.next()
    assert (missed["event"], missed["data"], missed["id"]) == ("missed", {"missed": count - 1000}, count - 1000)
    assert [events.next()["data"]["number"] for _ in range(1000)] == list(range(count - 999, count + 1))
    events.close()


def test_events_end_with_their_cluster(odradek: Odradek) -> None:
    kafka = odradek.cluster()
    events = Events(odradek, kafka)
    kafka.restart()
    with Wire(kafka.bootstrap, "a") as wire:
        wire.ask(ApiVersionsRequest(), 0)
    assert events.next()["data"]["client_id"] == "a"
    kafka.delete()
    assert events.next() == {}


@pytest.mark.parametrize(("query", "last"), [("?since=x", None), ("?limit=3", None), ("", "x"), ("?api=", -1)])
def test_bad_input_is_refused(odradek: Odradek, kafka: Cluster, query: str, last: int | str | None) -> None:
    events = Events(odradek, kafka, query, last)
    assert events.response.status == 400
    events.close()


def test_the_number_of_readers_is_limited(odradek: Odradek, kafka: Cluster) -> None:
    readers = [Events(odradek, kafka) for _ in range(16)]
    assert {each.response.status for each in readers} == {200}
    refused = Events(odradek, kafka)
    assert refused.response.status == 409
    for each in [*readers, refused]:
        each.close()
