"""Runs the integration tests of Apache Kafka's own clients and tools, from Maven Central, against this broker.

The tests would start a Kafka cluster in their own process. A class with the same name is placed before Kafka's class on
the class path. It creates a cluster of `odradek serve --control` with the same number of nodes instead, and records the
cluster's exchanges. The cluster emulates the Kafka release that the tests belong to. The class aborts tests that need
objects of Kafka's broker, or settings that Odradek refuses. The Kafka Streams tests start their cluster with another
class (`STREAMS_CLUSTER`), which is replaced in the same way.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

from odradek.testing.sync import Process
from tests.client_lab.installing import PROGRAMS, install_jars

VERSION = "4.3.1"
STREAMS = "kafka-streams-integration-tests"
# Jars that contain integration tests.
JARS = ("kafka-clients-integration-tests", "kafka-tools", "kafka_2.13", "kafka-server")
COORDINATES = (
    *(
        f"org.apache.kafka:{name}:{VERSION}:test"
        for name in (
            *JARS,
            STREAMS,
            "kafka-clients",
            "kafka-group-coordinator",
            "kafka-metadata",
            "kafka-server-common",
            "kafka-storage",
            "kafka-streams",
        )
    ),
    f"org.apache.kafka:kafka-streams:{VERSION}",
    *(f"org.apache.kafka:{name}:{VERSION}" for name in ("kafka-test-common-runtime", "kafka_2.13", "kafka-tools")),
    "org.junit.platform:junit-platform-console:1.13.1",
    "junit:junit:4.13.2",  # needed by the streams group tests
    "org.mockito:mockito-core:5.14.2",
    "org.hamcrest:hamcrest:3.0",
    "org.apache.logging.log4j:log4j-slf4j-impl:2.25.4",  # writes log messages that some tests expect
)
# name prefix of the annotations that mark integration tests
NEEDS_CLUSTER = b"Lorg/apache/kafka/common/test/api/Cluster"
STREAMS_CLUSTER = b"org/apache/kafka/streams/integration/utils/EmbeddedKafkaCluster"
# Kafka Streams tests whose class file lacks this text use only the classic protocol.
STREAMS_PROTOCOL = b"group.protocol"
VARIANT = re.compile(r"\$With\w+Test(?=\.class)")  # nested classes that repeat tests with other broker settings
INSTEAD = [
    PROGRAMS / f"{name}.java" for name in ("ControlledCluster", "KafkaClusterTestKit", "RaftClusterInvocationContext")
]
CLASS_S = 1800  # long enough for share group tests, which wait for heartbeats
OPTIONS = (
    *("--details=none", "--disable-banner", "--disable-ansi-colors"),
    "--config=junit.jupiter.extensions.autodetection.enabled=true",
    "--config=junit.jupiter.execution.timeout.testtemplate.method.default=90s",
)
PASSED, FAILED, ABORTED = "passed", "failed", "does not apply"
SAME_PLACE = "nodes share one log: all are replicas of each partition, and nothing is copied"
IN_BROKER = "needs a class of the test's in the broker"
LACKING = {  # known reasons for failures, by class or by `Outcome.test` without brackets
    "AdminClientWithPoliciesIntegrationTest.testInvalidAlterConfigsDueToPolicy": IN_BROKER,
    "AllocateProducerIdsRequestTest": "needs controllers",
    "ApiVersionsRequestTest.testApiVersionsRequest": "needs 4.4's metadata.version",
    "ApiVersionsRequestTest.testApiVersionsRequestIncludesUnreleasedApis": "needs 4.4's metadata.version",
    "ApiVersionsRequestTest.testApiVersionsRequestThroughControllerListener": "needs controllers",
    "ApiVersionsRequestTest.testApiVersionsRequestValidationV0ThroughControllerListener": "needs controllers",
    "AutoTopicCreationTest.testAutoCreateTopicWithDefaultConfig": SAME_PLACE,
    "BootstrapControllersIntegrationTest.testDescribeFeatures": "needs 4.4's metadata.version",
    "BrokerApiVersionsCommandTest.testBrokerApiVersionsCommandOutput": "needs UnregisterBroker",
    "BrokerMetricNamesTest.testMetrics": "needs gauges of Kafka's broker",
    "ClientRebootstrapTest.testProducerRebootstrap": f"{SAME_PLACE}, so that an unclean election loses nothing",
    "ClientTelemetryTest.testClientInstanceId": IN_BROKER,
    "ClusterToolTest.testUnregister": "needs UnregisterBroker",
    "ConfigCommandIntegrationTest.testBrokerLoggerConfigUpdate": "needs a logger that is a class of Kafka's",
    "ConfigCommandIntegrationTest.testDynamicBrokerConfigUpdateUsingKraft": "log.cleaner.threads has no effect here",
    "ConfigCommandIntegrationTest.testUpdateBrokerConfigNotAffectedByInvalidConfig": "needs the broker's KafkaConfig",
    "ConsumerGroupDescribeRequestTest.testConsumerGroupDescribeWithNewGroupCoordinator": "needs a hash map's order",
    "CreateTopicsRequestWithPolicyTest.testErrorCreateTopicsRequests": IN_BROKER,
    "CustomQuotaCallbackTest.testCustomQuotaCallbackWithControllerServer": IN_BROKER,
    "DescribeConsumerGroupTest.testDescribeConsumerGroupWithoutLeaders": SAME_PLACE,
    "DescribeProducersWithBrokerIdTest.testDescribeProducersWithInvalidBrokerId": SAME_PLACE,
    "DescribeQuorumRequestTest.testDescribeQuorum": "needs controllers",
    "EndToEndClusterIdTest": IN_BROKER,
    "KafkaStreamsTelemetryIntegrationTest.shouldPushGlobalThreadMetricsToBroker": IN_BROKER,
    "KafkaStreamsTelemetryIntegrationTest.shouldPushMetricsToBroker": IN_BROKER,
    "LeaderElectionCommandTest.testAllTopicPartition": SAME_PLACE,
    "LeaderElectionCommandTest.testElectionResultOutput": "an election moves no leader here",
    "LeaderElectionCommandTest.testPathToJsonFile": SAME_PLACE,
    "LeaderElectionCommandTest.testPreferredReplicaElection": "an election moves no leader here",
    "LeaderElectionCommandTest.testTopicPartition": SAME_PLACE,
    "ListGroupsRequestTest.testListGroupsWithNewConsumerGroupProtocol": "needs a hash map's order",
    "MetadataQuorumCommandTest.testDescribeQuorumReplicationSuccessful": "needs controllers",
    "MetadataQuorumCommandTest.testDescribeQuorumStatusSuccessful": "needs controllers",
    "MetadataVersionIntegrationTest.testDefaultIsLatestVersion": "needs 4.4's metadata.version",
    "MetricsDuringTopicCreationDeletionTest.testMetricsDuringTopicCreateDelete": "needs gauges of Kafka's broker",
    "PlaintextConsumerTest.testAsyncConsumerCloseLeavesGroupOnInterrupt": "flaky on Kafka (KAFKA-18031)",
    "ProducerFailureHandlingTest.testNotEnoughReplicasAfterBrokerShutdown": "min.insync.replicas is not heeded",
    "RackAwareAutoTopicCreationTest.testAutoCreateTopic": SAME_PLACE,
    "ReassignPartitionsCommandTest.testAlterLogDirReassignmentThrottle": "needs several log directories",
    "ReassignPartitionsCommandTest.testAlterReassignmentThrottle": "needs settings of a node",
    "ReassignPartitionsCommandTest.testCancellationWithAddingAndRemovingReplicaInIsr": "needs settings of a node",
    "ReassignPartitionsCommandTest.testCancellationWithAddingReplicaInIsr": "needs settings of a node",
    "ReassignPartitionsCommandTest.testCancellationWithBootstrapController": "needs settings of a node",
    "ReassignPartitionsCommandTest.testCancellationWithBootstrapServer": "needs settings of a node",
    "ReassignPartitionsCommandTest.testDisallowReplicationFactorChange": SAME_PLACE,
    "ReassignPartitionsCommandTest.testGenerateAssignmentWithBootstrapServer": SAME_PLACE,
    "ReassignPartitionsCommandTest.testGenerateAssignmentWithOneBootstrapServerShutdownWontTimeout": SAME_PLACE,
    "ReassignPartitionsCommandTest.testHighWaterMarkAfterPartitionReassignment": SAME_PLACE,
    "ReassignPartitionsCommandTest.testLogDirReassignment": "needs several log directories",
    "ReassignPartitionsCommandTest.testProduceAndConsumeWithReassignmentInProgress": "needs settings of a node",
    "ReassignPartitionsCommandTest.testReassignment": SAME_PLACE,
    "ReassignPartitionsCommandTest.testThrottledReassignment": "needs settings of a node",
    "ResetConsumerGroupOffsetTest.testResetOffsetsWithPartitionNoneLeader": SAME_PLACE,
    "RestoreIntegrationTest.shouldRecycleStateFromStandbyTaskPromotedToActiveTaskAndNotRestore": (
        "expects that a standby task is revoked before it becomes active, as in Kafka 4.3.1 but not in 4.4.0"
    ),
    "ShareConsumerRackAwareTest.testShareConsumerWithRackAwareAssignor": IN_BROKER,
    "ShareConsumerTest.testRenewAcknowledgementInvalidStateRecord": "needs gauges of Kafka's broker",
    "ShareConsumerTest.testRenewAcknowledgementNoResultInPoll": "needs gauges of Kafka's broker",
    "ShareConsumerTest.testRenewAcknowledgementOnCommitSync": "needs gauges of Kafka's broker",
    "ShareConsumerTest.testRenewAcknowledgementOnPoll": "needs gauges of Kafka's broker",
    "SocketServerMemoryPoolTest.testProduceRequestWithCorruptBody": "needs the memory pool of Kafka's broker",
    "SocketServerMemoryPoolTest.testProduceRequestWithUnsupportedVersion": "needs the memory pool of Kafka's broker",
    "StreamsGroupHeartbeatRequestTest.testDynamicGroupConfig": "expects that the assignment interval, 1 s, has passed",
    "TopicCommandTest.testAlterAssignment": SAME_PLACE,
    "TopicCommandTest.testCreateAlterTopicWithRackAware": SAME_PLACE,
    "TopicCommandTest.testCreateWithDefaultPartitions": SAME_PLACE,
    "TopicCommandTest.testCreateWithDefaultReplication": SAME_PLACE,
    "TopicCommandTest.testCreateWithDefaults": SAME_PLACE,
    "TopicCommandTest.testCreateWithReplicaAssignment": SAME_PLACE,
    "TopicCommandTest.testDescribeUnavailablePartitions": SAME_PLACE,
    "TopicCommandTest.testDescribeUnderMinIsrPartitionsMixed": SAME_PLACE,
    "TopicCommandTest.testDescribeUnderReplicatedPartitionsWhenReassignmentIsInProgress": "needs settings of a node",
}


class Outcome(NamedTuple):
    """A test's result. `words` is the reason for the result, or empty if the test passed."""

    test: str
    result: str
    words: str = ""


class KafkaTests:
    """Kafka's tests, installed and ready to run.

    folder    receives compiled classes, reports and recordings
    on_kafka  runs the tests on the Kafka cluster that they start themselves, for comparison, without recordings

    Raises CalledProcessError if the tests cannot be installed or compiled.
    """

    def __init__(self, folder: Path, *, on_kafka: bool = False) -> None:
        self._folder = folder
        self._on_kafka = on_kafka
        jars = install_jars(f"kafka-tests-with-logger-{VERSION}", COORDINATES)
        self._class_path = jars
        self._folder_of_jars = Path(jars).parent
        if not on_kafka:
            instead = folder / "classes"
            subprocess.run(["javac", "-cp", jars, "-d", str(instead), *map(str, INSTEAD)], check=True)
            self._class_path = f"{instead}:{jars}"

    def classes(self, names: Sequence[str]) -> list[str]:
        """Returns the test classes whose simple name or jar is in `names`, or all of them if `names` is empty. A
        class includes its variants with other broker settings."""
        found: list[str] = []
        for name in (*JARS, STREAMS):
            with zipfile.ZipFile(self._folder_of_jars / f"{name}-{VERSION}-test.jar") as jar:
                classes = (file for file in jar.namelist() if file.endswith(".class"))
                files = [file for file in classes if _is_wanted(file, jar.read(VARIANT.sub("", file)))]
            tests = sorted(file.removesuffix(".class").replace("/", ".") for file in files)
            found += [each for each in tests if not names or {name, *_simple_names(each)} & set(names)]
        return found

    def run(self, name: str) -> tuple[list[Outcome], list[Path]]:
        """Runs one class and returns its tests' outcomes and recordings. A class that exceeds its time limit has a
        single outcome."""
        reports, recordings = (self._folder / part / name.rpartition(".")[2] for part in ("reports", "recordings"))
        for each in (reports, recordings):
            shutil.rmtree(each, ignore_errors=True)
            each.mkdir(parents=True)
        words = ["java", "-cp", self._class_path, "org.junit.platform.console.ConsoleLauncher", "execute"]
        words += [*OPTIONS, f"--reports-dir={reports}", f"--select-class={name}"]
        environment = {**os.environ, "RECORDINGS": str(recordings)}
        process = None if self._on_kafka else Process({})
        try:
            if process is not None:
                environment["ODRADEK_CONTROL"] = f"127.0.0.1:{process.ready['http_port']}"
            with (reports / "log").open("wb") as log:
                subprocess.run(words, env=environment, stdout=log, stderr=log, timeout=CLASS_S, check=False)
        except subprocess.TimeoutExpired:
            return [Outcome(name, FAILED, f"not over after {CLASS_S} s")], sorted(recordings.iterdir())
        finally:
            if process is not None:
                process.stop()
        return list(outcomes(reports / "TEST-junit-jupiter.xml")), sorted(recordings.iterdir())


def _simple_names(name: str) -> tuple[str, str]:
    simple = name.rpartition(".")[2]
    return simple, simple.partition("$")[0]


def _is_wanted(file: str, code: bytes) -> bool:
    if STREAMS_CLUSTER in code:
        return STREAMS_PROTOCOL in code and file.endswith("Test.class")
    return NEEDS_CLUSTER in code


def outcomes(report: Path) -> Iterator[Outcome]:
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        test = f"{case.attrib['classname'].rpartition('.')[2]}.{case.attrib['name']}"
        failure, skipped = case.find("failure"), case.find("skipped")
        if failure is None:
            failure = case.find("error")
        name = re.sub(r"[$(\[][^.]*", "", test)
        known = LACKING.get(name) or LACKING.get(name.partition(".")[0])
        if failure is not None and known is not None:
            yield Outcome(test, ABORTED, known)
        elif failure is not None:
            yield Outcome(test, FAILED, failure.attrib.get("message") or failure.attrib.get("type", ""))
        elif skipped is not None:
            yield Outcome(test, ABORTED, (skipped.text or "").partition("\n")[0])
        else:
            yield Outcome(test, PASSED)
