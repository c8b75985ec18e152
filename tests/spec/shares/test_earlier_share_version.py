"""Tests a directory in which an earlier Odradek used `share.version` 2 for acknowledgements in transactions (ADR
35)."""

import logging
from pathlib import Path

import pytest

from odradek.broker.metadata.earlier_share_version import EarlierShareVersion
from odradek.broker.metadata.records import Decision, decode_record
from odradek.broker.runtime.starting import CannotStart
from odradek.protocol.batch_header import batches
from odradek.protocol.messages.feature_level_record import FeatureLevelRecord
from odradek.protocol.messages.register_broker_record import BrokerFeature, RegisterBrokerRecord
from odradek.protocol.records import records_of
from odradek.protocol.struct import Message
from tests.support.earlier_directories import PENDING, RAISED, RESOLVED, copied_from, on_fake_disk
from tests.support.fake_disk import FakeDisk
from tests.support.metadata import DATA, Running, config_with
from tests.support.oracle import needs_oracle, unpack

FORMATTED = f"{DATA}/__cluster_metadata-0/00000000000000000000-0000000000.checkpoint"

OWN = "odradek.share.transactions"
EARLIER = {"share.version": 2, "metadata.version": 30}
TODAY = {"share.version": 2, "metadata.version": 33, OWN: 1}
KAFKA_4_3 = {"share.version": 1, "metadata.version": 31}
KAFKA_4_4 = {"share.version": 2, "metadata.version": 33}


def registered(highest: dict[str, int]) -> RegisterBrokerRecord:
    features = [BrokerFeature(name=name, max_supported_version=level) for name, level in highest.items()]
    return RegisterBrokerRecord(broker_id=1, features=features)


def level(name: str, to: int) -> FeatureLevelRecord:
    return FeatureLevelRecord(name=name, feature_level=to)


def is_own(record: object) -> bool:
    return isinstance(record, FeatureLevelRecord) and record.name == OWN


def set_levels(running: Running, **levels: int) -> None:
    records = tuple(level(name.replace("_", "."), to) for name, to in levels.items())
    running.metadata.submit(lambda image: Decision(None, records)).outcome()


def stopped(running: Running) -> FakeDisk:
    running.stop()
    assert isinstance(running.disk, FakeDisk)
    return running.disk.after_kill()


@pytest.mark.parametrize("name", [RAISED, PENDING, RESOLVED])
def test_w2_the_feature_is_raised_at_the_first_start_and_logged_once(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    disk = on_fake_disk(name)
    with caplog.at_level(logging.WARNING):
        running = Running(disk)
    assert running.metadata.image.features[OWN] == 1
    assert running.metadata.image.features["share.version"] == 2
    assert running.metadata.image.acknowledges_in_transactions
    assert "an earlier Odradek stored acknowledgements in transactions here" in caplog.text
    caplog.clear()
    again = Running(stopped(running))
    assert again.metadata.image.features[OWN] == 1
    assert caplog.text == ""


def test_w2_it_is_one_batch_of_one_record_before_the_registration() -> None:
    """Checks that the broker writes its decision about the level in a batch of one record directly before its
    registration. A registration thus proves that the decision was made."""
    running = Running(on_fake_disk(PENDING))
    data = running.disk.read_bytes(f"{DATA}/__cluster_metadata-0/00000000000000000000.log")
    found = [
        [decode_record(record.value or b"") for record in records_of(data, position)]
        for position, header in batches(data)
        if not header.is_control
    ]
    (at,) = [number for number, records in enumerate(found) if any(is_own(record) for record in records)]
    assert len(found[at]) == 1
    assert isinstance(found[at + 1][0], RegisterBrokerRecord)


@pytest.mark.parametrize("name", [PENDING, RESOLVED])
def test_w2_private_tags_are_enough_if_the_log_does_not_show_who_raised_the_level(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(EarlierShareVersion, "follow_record", lambda self, record: None)
    assert Running(on_fake_disk(name)).metadata.image.features.get(OWN) == 1


def test_w3_a_level_without_a_trace_of_odradek_stays_kafkas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EarlierShareVersion, "follow_record", lambda self, record: None)
    features = Running(on_fake_disk(RAISED)).metadata.image.features
    assert OWN not in features
    assert features["share.version"] == 2


@needs_oracle
def test_w3_a_directory_that_kafka_4_4_wrote_is_kafkas(tmp_path: Path) -> None:
    disk = copied_from(unpack("plain-4.4.0", tmp_path))
    features = Running(disk).metadata.image.features
    assert features["share.version"] == 2
    assert OWN not in features


def test_w1_at_share_version_1_there_is_nothing_to_do() -> None:
    running = Running(FakeDisk())
    again = Running(stopped(running))
    assert OWN not in again.metadata.image.features


def test_a_level_that_was_lowered_by_hand_is_not_raised_again() -> None:
    running = Running(on_fake_disk(RESOLVED))
    set_levels(running, odradek_share_transactions=0)
    again = Running(stopped(running))
    assert OWN not in again.metadata.image.features
    assert again.metadata.image.features["share.version"] == 2


@pytest.mark.parametrize(
    ("records", "was_raised", "is_decided"),
    [
        ([registered(EARLIER), level("share.version", 2)], True, False),
        ([registered(EARLIER), level("share.version", 2), level("share.version", 1)], False, False),
        ([registered(EARLIER), level("share.version", 2), registered(TODAY)], True, True),
        ([registered(EARLIER), level("share.version", 2), registered(TODAY), registered(KAFKA_4_4)], True, True),
        ([registered(EARLIER), level("share.version", 2), registered(TODAY), registered(EARLIER)], True, False),
        ([registered(EARLIER), registered(KAFKA_4_4), level("share.version", 2)], False, False),
        ([level("share.version", 2), registered(EARLIER)], False, False),
        ([registered(KAFKA_4_4), level("share.version", 2)], False, False),
        ([registered(KAFKA_4_3), level("share.version", 1)], False, False),
        ([registered(TODAY), level("share.version", 2)], False, True),
    ],
)
def test_the_registered_broker_shows_whether_an_earlier_odradek_raised_the_level(
    records: list[Message], was_raised: bool, is_decided: bool
) -> None:
    earlier = EarlierShareVersion()
    for record in records:
        earlier.follow_record(record)
    assert (earlier.was_raised, earlier.is_decided) == (was_raised, is_decided)


# --- New directories.


def test_a_new_directory_begins_with_the_configured_feature() -> None:
    running = Running(FakeDisk(), config=config_with(odradek_share_transactions="1"))
    assert running.metadata.image.acknowledges_in_transactions
    assert b"odradek.share" not in running.disk.read_bytes(FORMATTED), "Kafka reads that"
    again = Running(stopped(running))
    assert again.metadata.image.features[OWN] == 1, "asked for once"


def test_a_directory_that_is_not_new_stays_as_it_is_and_the_log_says_what_to_do(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk = stopped(Running(FakeDisk()))
    running = Running(disk, config=config_with(odradek_share_transactions="1"))
    assert OWN not in running.metadata.image.features
    assert "odradek features upgrade --feature odradek.share.transactions=1" in caplog.text


def test_w9_a_level_of_a_later_odradek_is_refused() -> None:
    running = Running(FakeDisk())
    set_levels(running, odradek_share_transactions=2)
    with pytest.raises(CannotStart, match=r"feature odradek\.share\.transactions at level 2.*levels 0 to 1"):
        Running(stopped(running))


def test_w9_an_unknown_feature_of_a_later_odradek_is_refused() -> None:
    running = Running(FakeDisk())
    set_levels(running, odradek_other=1)
    with pytest.raises(CannotStart, match=r"feature odradek\.other"):
        Running(stopped(running))
