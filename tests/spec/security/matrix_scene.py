"""Provides the broker that the cases of matrix.json run on, and compares its answers with Kafka's.

Source: docs/spec/security.md#s3-6.
"""

from __future__ import annotations

import json
import logging
import re
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from odradek.broker.configuration.contradictions import STANDARD_AUTHORIZER
from odradek.broker.security.authorization import AUDIT_LOGGER, TRACE
from odradek.protocol.acls import Operation, ResourceType
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages import message_class, request_class
from odradek.protocol.records import NewRecord, build_batch
from odradek.protocol.schema import snake_case
from tests.support.in_process_broker import ConnectionClosed, InProcessBroker
from tests.support.json_messages import json_of, message_of

CASES: list[dict[str, Any]] = json.loads(Path(__file__).with_name("matrix.json").read_text())["cases"]
ADMIN, NOBODY = "User:admin", "User:nobody"
SETTINGS = {
    "authorizer.class.name": STANDARD_AUTHORIZER,
    "super.users": ADMIN,
    "delegation.token.secret.key": "what only brokers know",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
}
TRIES = 5_000  # maximum number of attempts per request; reaching the expected state takes a few fsyncs
MEMBER = "AAAAAAAAAAAAAAAAAAAAAg"
TYPES = {
    "Topic": ResourceType.TOPIC,
    "Group": ResourceType.GROUP,
    "Cluster": ResourceType.CLUSTER,
    "TransactionalId": ResourceType.TRANSACTIONAL_ID,
    "DelegationToken": ResourceType.DELEGATION_TOKEN,
    "User": ResourceType.USER,
}
AUDIT_LINE = re.compile(
    r"Principal = (\S+) is (Allowed|Denied) operation = (\w+) from host = \S+ on resource = (\w+):LITERAL:(.*)"
    r" for request = (\w+) with resourceRefCount = (\d+) based on rule .*"
)
# Fields that differ between runs, and messages that differ between the brokers.
UNCOMPARED = frozenset(
    {
        "throttleTimeMs",
        "leaderEpoch",
        "producerId",
        "producerEpoch",
        "memberEpoch",
        "heartbeatIntervalMs",
        "acquisitionLockTimeoutMs",
        "coordinatorEpoch",
        "controllerId",
        "sessionId",
        "logAppendTimeMs",
        "maxSupportedFeatures",
    }
)
UUID = re.compile("[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def batch(**kind: Any) -> str:
    return b64encode(bytes(build_batch([NewRecord(b"k", b"v", 1_700_000_000_000)], **kind))).decode()


class Recorder(logging.Handler):
    """A log handler that collects the lines of the audit log.

    lines  one tuple per line: the log level, the principal, the result, the operation, the type and name of the
           resource, the API, and how many times the request uses the resource
    """

    def __init__(self) -> None:
        super().__init__(level=TRACE)
        self.lines: list[tuple[str, ...]] = []

    def __enter__(self) -> Recorder:
        log = logging.getLogger(AUDIT_LOGGER)
        log.addHandler(self)
        log.setLevel(TRACE)
        log.propagate = False
        return self

    def __exit__(self, *_: object) -> None:
        log = logging.getLogger(AUDIT_LOGGER)
        log.removeHandler(self)
        log.setLevel(logging.NOTSET)
        log.propagate = True

    def emit(self, record: logging.LogRecord) -> None:
        match = AUDIT_LINE.fullmatch(record.getMessage())
        assert match is not None, record.getMessage()
        level = "TRACE" if record.levelno == TRACE else record.levelname
        self.lines.append((level, *match.groups()))

    def checks(self, principal: str) -> set[tuple[str, ...]]:
        """Returns a principal's authorization checks that affect an answer, in the form returned by `heeded`."""
        return heeded(
            (kind, name, operation, result.lower(), level)
            for level, who, result, operation, kind, name, _, _ in self.lines
            if who == principal
        )


def heeded(checks: Iterable[Sequence[str]]) -> set[tuple[str, ...]]:
    """Returns (type, name, operation, result, level) for each check that affects an answer.

    Omits checks logged at TRACE, such as probes and authorized operations, because the answer itself shows their
    results.
    """
    return {tuple(check) for check in checks if check[4] != "TRACE"}


class MatrixScene:
    """A broker with everything that the cases need. `admin` prepares the cases, and `nobody` sends their requests."""

    def __init__(self, client: InProcessBroker, audit: Recorder) -> None:
        self.audit = audit
        self._client = client
        self._admin = client.connection(ADMIN)
        self.ids: dict[str, str] = {}
        self._prepare()

    def admin(self, api: str, version: int, **fields: Any) -> dict[str, Any]:
        request = message_of(message_class(f"{snake_case(api)}_request"), fields)
        return json_of(self._client.ask(self._admin, request, version), version)

    def ask(self, api_key: int, version: int, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Sends a request as User:nobody on a new connection, like a client that has just started."""
        connection = self._client.connection(NOBODY)
        request = message_of(request_class(api_key), self._filled(fields))
        self.audit.lines.clear()
        try:
            answer = json_of(self._client.ask(connection, request, version), version)
        except ConnectionClosed:
            return {"$closed": True}
        finally:
            connection.notify_closed()
        named: dict[str, Any] = self._named(answer)
        return named

    def set_up(self, api: str, case: str) -> None:
        """Creates the topic or group that the case deletes, or the group with the member that the case describes."""
        if api == "DeleteTopics" and case.startswith("existing"):
            self._create("m-del", 1)
        elif api == "DeleteGroups" and case == "existing group":
            self._commit("m-gdel")
        elif api == "ConsumerGroupDescribe":
            self._join("ConsumerGroupHeartbeat", "m-cg", rebalanceTimeoutMs=10000, topicPartitions=[])
        elif api == "ShareGroupDescribe":
            self._join("ShareGroupHeartbeat", "m-sg")
        elif api == "StreamsGroupDescribe":
            self._join_streams_group("m-stg")

    def grant(self, kind: str, name: str, operation: str) -> None:
        creation = {
            "resourceType": TYPES[kind].value,
            "resourceName": name,
            "resourcePatternType": 3,
            "principal": NOBODY,
            "host": "*",
            "operation": Operation[operation].value,
            "permissionType": 3,
        }
        (result,) = self.admin("CreateAcls", 3, creations=[creation])["results"]
        assert result["errorCode"] == 0, result

    def revoke_all(self) -> None:
        every = {
            "resourceTypeFilter": 1,
            "resourceNameFilter": None,
            "patternTypeFilter": 1,
            "principalFilter": NOBODY,
            "hostFilter": None,
            "operation": 1,
            "permissionType": 1,
        }
        self.admin("DeleteAcls", 3, filters=[every])

    def _prepare(self) -> None:
        # The matrix was recorded on Kafka 4.3.1, whose share.version has the maximum 1.
        lower = {"feature": "share.version", "maxVersionLevel": 1, "upgradeType": 2}
        self.admin("UpdateFeatures", 1, featureUpdates=[lower])
        self._create("m-t", 2)
        data = {"name": "m-t", "partitionData": [{"index": 0, "records": batch()}]}
        self.admin("Produce", 12, acks=-1, timeoutMs=5000, topicData=[data])
        # When the matrix was recorded, Kafka had already deleted this topic's records.
        deleted = {"name": "m-t", "partitions": [{"partitionIndex": 0, "offset": -1}]}
        self.admin("DeleteRecords", 2, topics=[deleted], timeoutMs=5000)
        self._commit("m-g")
        producer = self._until(
            "InitProducerId", 5, lambda found: found["errorCode"], transactionalId="m-tx", transactionTimeoutMs=900_000
        )
        self._join("ShareGroupHeartbeat", "m-sge")
        self.admin("ShareGroupHeartbeat", 1, groupId="m-sge", memberId=MEMBER, memberEpoch=-1)
        self.admin(
            "AddPartitionsToTxn",
            3,
            v3AndBelowTransactionalId="m-tx",
            v3AndBelowProducerId=producer["producerId"],
            v3AndBelowProducerEpoch=producer["producerEpoch"],
            v3AndBelowTopics=[{"name": "m-t", "partitions": [1]}],
        )
        interval = {"name": "interval.ms", "configOperation": 0, "value": "60000"}
        metrics = {"resourceType": 16, "resourceName": "m-cm", "configs": [interval]}
        self.admin("IncrementalAlterConfigs", 1, resources=[metrics])

    def _create(self, name: str, partitions: int) -> None:
        topic = {"name": name, "numPartitions": partitions, "replicationFactor": 1}
        self.admin("CreateTopics", 7, topics=[topic], timeoutMs=30_000)
        (found,) = self.admin("Metadata", 12, topics=[{"name": name}], allowAutoTopicCreation=False)["topics"]
        self.ids[name] = found["topicId"]

    def _commit(self, group: str) -> None:
        offset = {"partitionIndex": 0, "committedOffset": 1, "committedMetadata": ""}
        self._until(
            "OffsetCommit",
            9,
            lambda found: found["topics"][0]["partitions"][0]["errorCode"],
            groupId=group,
            generationIdOrMemberEpoch=-1,
            memberId="",
            topics=[{"name": "m-t", "partitions": [offset]}],
        )

    def _join(self, api: str, group: str, **fields: Any) -> None:
        """Joins the group and repeats the heartbeat until the member owns partitions."""
        epoch = 0
        for _ in range(TRIES):
            found = self.admin(
                api, 1, groupId=group, memberId=MEMBER, memberEpoch=epoch, subscribedTopicNames=["m-t"], **fields
            )
            epoch = found["memberEpoch"]
            if epoch and found["assignment"] and found["assignment"]["topicPartitions"]:
                return
            self._client.go_on()
        raise AssertionError(f"{group} gets no partitions: {found}")

    def _join_streams_group(self, group: str) -> None:
        """Joins the streams group as its only member, which then owns all tasks."""
        no_delay = {"name": "streams.initial.rebalance.delay.ms", "configOperation": 0, "value": "0"}
        settings = {"resourceType": 32, "resourceName": group, "configs": [no_delay]}
        self.admin("IncrementalAlterConfigs", 1, resources=[settings])
        self._until(
            "StreamsGroupHeartbeat",
            0,
            lambda found: found["errorCode"],
            groupId=group,
            memberId=MEMBER,
            memberEpoch=0,
            rebalanceTimeoutMs=10_000,
            processId="p",
            topology={"epoch": 0, "subtopologies": [{"subtopologyId": "s0", "sourceTopics": ["m-t"]}]},
            activeTasks=[],
            standbyTasks=[],
            warmupTasks=[],
        )

    def _until(self, api: str, version: int, code_of: Any, **fields: Any) -> dict[str, Any]:
        """Retries a request while the coordinator is loading or while its internal topic is being created."""
        for _ in range(TRIES):
            found = self.admin(api, version, **fields)
            code = code_of(found)
            if code == 0:
                return found
            assert code in (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS.value, ErrorCode.NOT_COORDINATOR.value), found
            self._find_coordinators()
            self._client.go_on()
        raise AssertionError(f"{api}: {found}")

    def _find_coordinators(self) -> None:
        for kind in (0, 1):
            self.admin("FindCoordinator", 4, keyType=kind, coordinatorKeys=["m"])

    def _filled(self, value: Any) -> Any:
        """Replaces placeholders such as `$id(m-t)` and `$records` with this broker's ids and with records."""
        if isinstance(value, Mapping):
            return {name: self._filled(each) for name, each in value.items()}
        if isinstance(value, list):
            return [self._filled(each) for each in value]
        if value == "$records":
            return batch()
        if value == "$txrecords":
            return batch(producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True)
        if isinstance(value, str):
            return re.sub(r"\$(?:raw)?id\((.*?)\)", lambda found: self.ids[found[1]], value)
        return value

    def _named(self, value: Any) -> Any:
        """Replaces this broker's ids with placeholders such as `$id(m-t)`."""
        if isinstance(value, Mapping):
            return {name: self._named(each) for name, each in value.items()}
        if isinstance(value, list):
            return [self._named(each) for each in value]
        if isinstance(value, str):
            for name, topic_id in self.ids.items():
                value = value.replace(topic_id, f"$id({name})")
        return value


def differences(expected: Any, actual: Any, path: str = "") -> Iterator[str]:
    """Yields the differences between two answers: error codes, shapes, nulls, and missing or additional entries."""
    name = path.rpartition(".")[2].rstrip("[]")
    if isinstance(expected, str) and "$uuid" in expected and isinstance(actual, str):
        if UUID.sub("$uuid", actual) != expected:
            yield f"{path}: {actual!r} instead of {expected!r}"
    elif isinstance(expected, str) and expected.startswith("$") and not expected.startswith(("$id(", "$rawid(")):
        if actual is None:
            yield f"{path}: null instead of {expected}"
    elif isinstance(expected, dict) and isinstance(actual, dict):
        for key in sorted(expected.keys() | actual.keys()):
            if key not in actual or key not in expected:
                yield f"{path}.{key}: {'missing' if key in expected else 'too many'}"
            else:
                yield from differences(expected[key], actual[key], f"{path}.{key}")
    elif isinstance(expected, list) and isinstance(actual, list):
        yield from _unordered(expected, actual, f"{path}[]")
    elif expected != actual and name not in UNCOMPARED and str(expected).replace("$raw", "$") != actual:
        yield f"{path}: {actual!r} instead of {expected!r}"


def _unordered(expected: list[Any], actual: list[Any], path: str) -> Iterator[str]:
    if len(expected) != len(actual):
        yield f"{path}: {actual!r} instead of {expected!r}"
        return
    left = list(actual)
    for each in expected:
        fitting = [one for one in left if not any(differences(each, one, path))]
        if fitting:
            left.remove(fitting[0])
        else:
            yield from differences(each, left.pop(0), path)


def errors_in(value: Any, path: str = "") -> dict[str, list[str]]:
    """Returns the names of the error codes at each path, in the form of matrix.json."""
    found: dict[str, set[str]] = {}
    for where, code in _codes(value, path):
        found.setdefault(where, set()).add(ErrorCode(code).name)
    return {where: sorted(names) for where, names in found.items()}


def _codes(value: Any, path: str) -> Iterator[tuple[str, int]]:
    if isinstance(value, dict):
        for key, each in value.items():
            here = f"{path}.{key}" if path else key
            if key.lower().endswith("errorcode"):
                if each:
                    yield here, each
            else:
                yield from _codes(each, here)
    elif isinstance(value, list):
        for each in value:
            yield from _codes(each, f"{path}[]")
