"""Tests the metrics in Prometheus's text format, and the readiness check."""

import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from prometheus_client.parser import text_string_to_metric_families

from odradek.broker.api.dispatch import MAX_BITS
from odradek.broker.broker import Broker
from odradek.broker.coordinators.verification import TransactionalProducer, UnverifiedBatch
from odradek.broker.groups.common import outcome
from odradek.broker.http.exposition import COUNTED, exposition
from odradek.broker.http.measures import (
    BlockingMeasure,
    DeadLetterMeasure,
    DiskMeasure,
    GroupMeasure,
    LagMeasure,
    ListenerMeasure,
    LoopMeasure,
    Measures,
    PartitionMeasure,
    PendingMeasure,
    QuotaMeasure,
    RequestMeasure,
    ShareMeasure,
    TransactionMeasure,
    VerificationMeasure,
    partition_measure,
)
from odradek.broker.http.pages import readiness
from odradek.broker.network.connection_host import LoginCounts
from odradek.broker.partitions.partition import Partition
from odradek.protocol.errors import ErrorCode
from odradek.protocol.lag import GroupLag
from odradek.protocol.records import NewRecord, build_batch
from odradek.storage.log import Origin
from tests.support.broker_scene import NOW_MS, BrokerScene
from tests.support.fake_disk import FakeDisk


def answered_in(*times_us: int) -> list[int]:
    """Returns the histogram of these times, in the buckets that `Way` uses."""
    counts = [0] * MAX_BITS
    for time_us in times_us:
        counts[time_us.bit_length()] += 1
    return counts


PAGE = Path(__file__).resolve().parents[4] / "docs" / "metrics.md"
MEASURES = Measures(
    requests=[
        RequestMeasure("Produce", 13, 4, 4_000, 2.0, 6.0, answered_in(31, 32, 5_000), throttle_ms=5_000),
        RequestMeasure("Produce", 9, 1, 10, 1.0, 0.0, answered_in(10**12)),
    ],
    errors={("EndTxn", "PRODUCER_FENCED"): 3},
    listeners=[
        ListenerMeasure("PLAINTEXT", 2, 7, delayed=(3, 900), held_count=(2, 1_500)),
        ListenerMeasure("SECURE", 1, 2, logins=LoginCounts(5, 4, 3, 2, 1)),
    ],
    quotas=[
        QuotaMeasure("producer_byte_rate", "ann", None, 1000.0, 1500.0, 5_000, 2),
        QuotaMeasure("request_percentage", None, "app", 50.0, 20.0, 0, 0),
        QuotaMeasure("consumer_byte_rate", "bob", "app", 10.0, 5.0, 0, 0),
        QuotaMeasure("controller_mutation_rate", "bob", None, 1.0, 0.5, 0, 0),
    ],
    partitions=[
        PartitionMeasure("ledger", 0, 1_000, 2, 10, 50, 40, 10, 3, True, 35, 8_000, 600),
        PartitionMeasure("ledger", 1, 500, 1, 0, 5, 5, 0, 1, False, 5, 1_000, 100),
    ],
    offline_partitions=1,
    groups=GroupMeasure(
        {("classic", "Stable"): 2, ("classic", "Empty"): 1, ("streams", "NotReady"): 4},
        12,
        {"streams": 5, "share": 1},
        {outcome.OFFSET_COMMITS: 70, outcome.DESCRIPTIONS_SET: 2},
        [LagMeasure("g", GroupLag(30, 1)), LagMeasure("h", GroupLag(None, 4))],
        2,
    ),
    transactions=TransactionMeasure({"Ongoing": 1, "CompleteCommit": 4}, 1_234, 1, 7),
    verification=VerificationMeasure(5, 20, 2),
    shares=ShareMeasure(
        12,
        3,
        [PendingMeasure("g", "tasks", 0, "pay", 10), PendingMeasure("g", "tasks", 1, None, 2)],
        [DeadLetterMeasure("g", records=7, writes=3, failed_writes=1, uncopied=2)],
    ),
    disk=DiskMeasure(120.5, answered_in(*[900] * 7, 114_000), 1_000_000, 250_000),
    loop=LoopMeasure(70.0, answered_in(100, 69_900), [BlockingMeasure("CreateTopics", 2, 90.0, 60.0)]),
)


def samples(measures: Measures) -> dict[tuple[str, ...], float]:
    """Returns the value of each sample. A key is the sample's name, followed by the values of its labels in the order
    of the label names."""
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(exposition(measures).decode())
        for sample in family.samples
    }


def test_requests_are_counted_by_api_and_version_with_their_times_in_ms_and_sizes() -> None:
    found = samples(MEASURES)
    prefix = "kafka_network_requestmetrics"
    assert found[f"{prefix}_requests_total", "Produce", "13"] == 4
    assert found[f"{prefix}_requests_total", "Produce", "9"] == 1
    assert found[f"{prefix}_requestbytes_sum", "Produce", "13"] == 4_000
    assert found[f"{prefix}_localtimems_sum", "Produce", "13"] == 2
    assert found[f"{prefix}_remotetimems_sum", "Produce", "13"] == 6
    assert found[f"{prefix}_totaltimems_sum", "Produce", "13"] == 8
    assert found[f"{prefix}_totaltimems_count", "Produce", "13"] == 3, "one is not answered yet"
    assert found[f"{prefix}_errors_total", "PRODUCER_FENCED", "EndTxn"] == 3


def test_quotas_show_what_is_used_of_them_and_for_how_long_clients_were_throttled() -> None:
    found = samples(MEASURES)
    of_ann = {name: value for (name, *labels), value in found.items() if labels == ["", "ann"]}
    assert of_ann == {
        "kafka_server_produce_byte_rate": 1500,
        "kafka_server_produce_quota": 1000,
        "kafka_server_produce_throttle_time_count": 2,
        "kafka_server_produce_throttle_time_sum": 5_000,
    }
    assert found["kafka_server_request_request_time", "app", ""] == 20
    assert found["kafka_network_requestmetrics_throttletimems_sum", "Produce", "13"] == 5_000


def test_connections_that_were_made_too_quickly_are_counted() -> None:
    found = samples(MEASURES)
    prefix, suffix = "kafka_server_socket_server_metrics_", "connection_accept_throttle_time"
    assert found[f"{prefix}{suffix}_count", "PLAINTEXT"] == 3
    assert found[f"{prefix}ip_{suffix}_sum", "PLAINTEXT"] == 1_500


def test_the_time_until_the_answer_is_a_histogram_from_which_percentiles_can_be_had() -> None:
    found = samples(MEASURES)
    bucket = "kafka_network_requestmetrics_totaltimems_bucket"
    buckets = {key[1]: value for key, value in found.items() if key[0] == bucket and key[2:] == ("Produce", "13")}
    assert [buckets[bound] for bound in ("0.032", "0.064", "4.096", "8.192", "+Inf")] == [1, 2, 2, 3, 3]
    assert found[bucket, "33554.432", "Produce", "9"] == 0, "it took longer than half a minute"
    assert found[bucket, "+Inf", "Produce", "9"] == 1


def test_topics_count_what_came_and_what_was_read() -> None:
    found = samples(MEASURES)
    prefix = "kafka_server_brokertopicmetrics"
    assert found[f"{prefix}_messagesin_total", "ledger"] == 40
    assert found[f"{prefix}_bytesin_total", "ledger"] == 9_000
    assert found[f"{prefix}_bytesout_total", "ledger"] == 700


def test_syncs_are_timed_and_the_file_system_is_measured() -> None:
    found = samples(MEASURES)
    assert found["kafka_log_logflushstats_logflushrateandtimems_count",] == 8
    assert found["kafka_log_logflushstats_logflushrateandtimems_sum",] == 120.5
    assert found["kafka_log_logflushstats_logflushrateandtimems_bucket", "1.024"] == 7
    assert found["odradek_log_directory_total_bytes",] == 1_000_000
    assert found["odradek_log_directory_usable_bytes",] == 250_000


def test_work_that_blocks_the_loop_is_reported_by_name() -> None:
    found = samples(MEASURES)
    assert (found["odradek_loop_latems_count",], found["odradek_loop_latems_sum",]) == (2, 70.0)
    assert found["odradek_loop_latems_bucket", "4.096"] == 1
    assert found["odradek_loop_blockingms_count", "CreateTopics"] == 2
    assert found["odradek_loop_blockingms_sum", "CreateTopics"] == 90.0
    assert found["odradek_loop_blockingms_max", "CreateTopics"] == 60.0


def test_groups_are_counted_by_state_with_their_offsets() -> None:
    found = samples(MEASURES)
    prefix = "kafka_coordinator_group_groupmetadatamanager"
    assert found[f"{prefix}_numgroups",] == 3
    assert found[f"{prefix}_numgroupsstable",] == 2
    assert found[f"{prefix}_numgroupsdead",] == 0
    assert found[f"{prefix}_numoffsets",] == 12


def test_lag_is_reported_by_group_with_the_number_of_partitions_left_out() -> None:
    found = samples(MEASURES)
    assert found["odradek_group_lag_records", "g"] == 30
    assert ("odradek_group_lag_records", "h") not in found
    assert found["odradek_group_uncommitted_partitions", "h"] == 4
    assert found["odradek_group_lag_left_out",] == 2


def test_groups_are_counted_by_type() -> None:
    found = samples(MEASURES)
    prefix = "kafka_server_group_coordinator_metrics"
    counts = [found[f"{prefix}_group_count", each] for each in ("classic", "consumer", "share", "streams")]
    assert counts == [3, 0, 0, 4]
    assert found[f"{prefix}_streams_group_count", "NotReady"] == 4
    assert found[f"{prefix}_streams_group_count", "Stable"] == 0
    assert found[f"{prefix}_consumer_group_count", "Assigning"] == 0
    rebalances = [found[f"{prefix}_{each}_group_rebalance_total",] for each in ("consumer", "share", "streams")]
    assert rebalances == [0, 1, 5]


def test_counters_of_groups_have_kafkas_names() -> None:
    found = samples(MEASURES)
    prefix = "kafka_server_group_coordinator_metrics"
    assert found[f"{prefix}_offset_commit_total",] == 70
    description = f"{prefix}_streams_group_topology_description"
    assert (found[f"{description}_set_success_total",], found[f"{description}_set_error_total",]) == (2, 0)
    assert set(outcome.COUNTED) <= set(COUNTED)


def test_partitions_show_their_offsets_and_how_far_readers_of_committed_data_lag() -> None:
    found = samples(MEASURES)
    assert found["kafka_log_log_logstartoffset", "0", "ledger"] == 10
    assert found["kafka_log_log_logendoffset", "0", "ledger"] == 50
    assert found["kafka_log_log_size", "1", "ledger"] == 500
    assert found["kafka_log_log_numlogsegments", "0", "ledger"] == 2
    assert found["kafka_cluster_partition_laststableoffset", "0", "ledger"] == 40
    assert found["kafka_cluster_partition_laststableoffsetlag", "0", "ledger"] == 10
    assert found["kafka_server_replicamanager_produceridcount",] == 4
    assert found["kafka_server_replicamanager_partitioncount",] == 2
    assert found["kafka_server_replicamanager_offlinereplicacount",] == 1
    assert found["kafka_server_replicamanager_partitionswithlatetransactionscount",] == 1


def test_transactions_and_verification_have_the_names_of_the_kips() -> None:
    found = samples(MEASURES)
    assert found["kafka_server_transaction_coordinator_metrics_transactional_id_count", "Ongoing"] == 1
    assert found["kafka_server_transaction_coordinator_metrics_active_transaction_open_time_max",] == 1_234
    assert found["kafka_server_transaction_coordinator_metrics_kept_transaction_count",] == 1
    assert found["kafka_server_addpartitionstotxnmanager_verificationtimems_count",] == 5
    assert found["kafka_server_addpartitionstotxnmanager_verificationtimems_sum",] == 20
    assert found["kafka_server_addpartitionstotxnmanager_verificationfailure_total",] == 2


def test_metrics_of_a_loading_coordinator_are_missing_instead_of_zero() -> None:
    loading = replace(MEASURES, transactions=None, groups=None, shares=ShareMeasure(None, 3))
    silent = ("transaction_coordinator", "group", "txnpendingrecords", "share_pending")
    assert not [key for key in samples(loading) if any(part in key[0] for part in silent)]


def test_pending_records_are_shown_by_share_partition_and_transaction() -> None:
    found = {key[1:]: value for key, value in samples(MEASURES).items() if key[0] == "odradek_share_pending_records"}
    assert found == {("g", "0", "tasks", "pay"): 10, ("g", "1", "tasks", ""): 2}


def test_dead_letters_are_counted_by_group() -> None:
    found = {key[0]: value for key, value in samples(MEASURES).items() if "letter" in key[0]}
    prefix = "kafka_server_sharegroupmetrics_deadletterqueue"
    assert found == {
        f"{prefix}recordcount_total": 7,
        f"{prefix}totalproducerequests_total": 3,
        f"{prefix}failedproducerequests_total": 1,
        "odradek_share_uncopied_dead_letters_total": 2,
    }


def test_the_page_names_every_metric_and_no_other() -> None:
    served = {key[0] for key in samples(MEASURES) if key[0].startswith("kafka_")}
    families = {re.sub(r"_(sum|count|total|bucket)$", "", name) for name in served}
    written = {re.sub(r"_(count|total)$", "", name) for name in re.findall(r"`(kafka_[a-z_]+)`", PAGE.read_text())}
    assert written == families


@pytest.fixture
def scene() -> BrokerScene:
    return BrokerScene(FakeDisk(), "/data")


def in_transaction(partition: Partition, now_ms: int) -> None:
    batch = build_batch(
        [NewRecord(None, b"v", now_ms)], producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True
    )
    partition.append_now(batch, origin=Origin.CLIENT, now_ms=now_ms)


def test_an_open_transaction_holds_back_the_last_stable_offset(scene: BrokerScene) -> None:
    scene.topic("t")
    partition = scene.partitions.get("t", 0)
    in_transaction(partition, NOW_MS)
    found = partition_measure(partition, late_before_ms=NOW_MS)
    assert (found.log_end_offset, found.last_stable_offset, found.stable_lag, found.producer_ids) == (1, 0, 1, 1)
    assert not found.has_late_transaction
    assert partition_measure(partition, late_before_ms=NOW_MS + 1).has_late_transaction


def broker_that(*, topics: tuple[str, ...], started: dict[str, Any], offline: tuple[str, int] = ("t", 3)) -> Broker:
    return cast(
        Broker,
        SimpleNamespace(
            metadata=SimpleNamespace(image=SimpleNamespace(topics=dict.fromkeys(topics))),
            partitions=SimpleNamespace(offline={offline}),
            has_started=lambda name: name in started,
            **started,
        ),
    )


def test_a_broker_is_ready_when_every_coordinator_has_loaded_its_topic() -> None:
    loaded, loading = SimpleNamespace(is_loaded=True), SimpleNamespace(is_loaded=False)
    both = ("__consumer_offsets", "__transaction_state")
    assert readiness(broker_that(topics=(), started={})).is_ready
    assert readiness(broker_that(topics=both, started={})).waiting_for == both
    groups = {"groups": SimpleNamespace(shards=[loaded, loading])}
    assert readiness(broker_that(topics=both, started={**groups, "transactions": loaded})).waiting_for == both[:1]
    groups = {"groups": SimpleNamespace(shards=[loaded, loaded])}
    assert readiness(broker_that(topics=both, started={**groups, "transactions": loaded})).is_ready


def test_a_broker_is_not_ready_while_the_state_of_share_groups_is_loaded() -> None:
    topics = ("__share_group_state",)
    assert readiness(broker_that(topics=topics, started={})).waiting_for == topics
    for is_loaded in (False, True):
        shards = [SimpleNamespace(is_loaded=True), SimpleNamespace(is_loaded=is_loaded)]
        started = {"share_coordinator": SimpleNamespace(shards=shards)}
        assert readiness(broker_that(topics=topics, started=started)).is_ready == is_loaded


def test_a_coordinator_with_a_partition_that_cannot_be_used_is_not_ready() -> None:
    topics, started = ("__transaction_state",), {"transactions": SimpleNamespace(is_loaded=True)}
    damaged = broker_that(topics=topics, started=started, offline=("__transaction_state", 7))
    assert readiness(damaged).waiting_for == topics
    assert readiness(damaged).offline == ("__transaction_state-7",)


def test_partitions_that_cannot_be_used_are_named() -> None:
    assert readiness(broker_that(topics=(), started={})).offline == ("t-3",)


class SlowRefusal:
    """A coordinator that takes 15 ms to refuse a request."""

    def __init__(self, scene: BrokerScene) -> None:
        self._scene = scene

    def add_partitions(
        self, transactional_id: str, producer_id: int, producer_epoch: int, partitions: Any, **_: Any
    ) -> Any:
        self._scene.clock.advance(15)
        return dict.fromkeys(partitions, ErrorCode.PRODUCER_FENCED)


def test_questions_to_the_coordinator_are_timed_and_their_refusals_counted(scene: BrokerScene) -> None:
    scene.topic("t", 2)
    scene.coordinator = SlowRefusal(scene)
    batches = [UnverifiedBatch(scene.partitions.get("t", index), 0) for index in (0, 1)]
    verifier = scene.broker.verifier
    verifier.verify(TransactionalProducer("pay", 7, 0), batches, True, lambda _: None, waits_for_the_last=False)
    assert (verifier.answered, verifier.answered_ms, verifier.failed) == (1, 15, 2)


def test_logins_are_counted_where_there_are_any() -> None:
    prefix = "kafka_server_socket_server_metrics_"
    for name, number in (
        ("successful_authentication", 5),
        ("failed_authentication", 4),
        ("successful_reauthentication", 3),
        ("failed_reauthentication", 2),
        ("expired_connections_killed", 1),
    ):
        found = {key: value for key, value in samples(MEASURES).items() if key[0] == f"{prefix}{name}_total"}
        assert found == {(f"{prefix}{name}_total", "SECURE"): number}
