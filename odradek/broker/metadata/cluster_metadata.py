"""Runs metadata decisions one at a time, and owns the log `__cluster_metadata-0`, the metadata image and its listeners.

    submit(decide) → decide(image) → append → fdatasync, `prepare` → replay → listeners → answer

Decisions that arrive during a turn wait until the turn ends. A change does not become visible to this broker or to
clients while a power failure could still undo it. A decision about a large number of objects is made in slices, and a
large number of records becomes visible in slices (replaying.py). The image does not change while a decision is being
made.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any, Final, TypeAlias, TypeVar

from odradek import __version__
from odradek.broker.configuration.config import BrokerConfig
from odradek.broker.configuration.listeners import Listener
from odradek.broker.configuration.resources import ConfigResourceType
from odradek.broker.metadata.earlier_share_version import EARLIER_LEVEL, EarlierShareVersion
from odradek.broker.metadata.features import SHARE_TRANSACTIONS_NEEDS
from odradek.broker.metadata.files import FILE as QUORUM_STATE
from odradek.broker.metadata.files import (
    QuorumState,
    decode_leader_epoch,
    encode_quorum_state,
    newest_snapshot,
)
from odradek.broker.metadata.image import DEFAULT_BROKER, MetadataImage, Node
from odradek.broker.metadata.lowered_levels import (
    MetadataSnapshot,
    is_lowered_for_kafka,
    levels_after,
    snapshot_for_kafka,
)
from odradek.broker.metadata.node_partitions import is_stray
from odradek.broker.metadata.producer_id_blocks import allocate_producer_ids
from odradek.broker.metadata.records import MAX_RECORDS, Decision, encode_record, record_batch
from odradek.broker.metadata.registration import (
    bootstrap_records,
    fencing_records,
    formatted_records,
    leadership_records,
    registration_records,
)
from odradek.broker.metadata.replaying import BROKER_CONFIG, CorruptMetadata, Loader, MetadataListener, replay, slices
from odradek.broker.metadata.supported_features import (
    FIRST_LEVELS,
    METADATA_VERSION,
    SHARE_TRANSACTIONS,
    SHARE_TRANSACTIONS_LEVEL,
    SHARE_VERSION,
    SUPPORTED_FEATURES,
    supports_share_transactions,
)
from odradek.broker.runtime.clock import Clock
from odradek.broker.runtime.slices import ENTRIES_PER_SLICE, Steps
from odradek.broker.runtime.starting import CannotStart
from odradek.broker.runtime.waiting import Deferred, start_unattended
from odradek.broker.runtime.workers import JobResult, Workers
from odradek.files.checkpoints import topic_id_bytes
from odradek.files.releases import release_order
from odradek.protocol.control_records import leader_change_batch
from odradek.protocol.errors import KafkaError
from odradek.protocol.kafka_rules import NEWEST, KafkaRules
from odradek.protocol.messages.abort_transaction_record import AbortTransactionRecord
from odradek.protocol.messages.feature_level_record import FeatureLevelRecord
from odradek.protocol.struct import Message
from odradek.protocol.topic_partition import CLUSTER_METADATA
from odradek.storage.disk import Disk
from odradek.storage.log import Log, LogFailed, SyncTicket
from odradek.storage.log_config import LogConfig
from odradek.storage.log_directory import LogDirectory

log = logging.getLogger("odradek.metadata")

R = TypeVar("R")
STEPS_PER_TURN = 100  # maximum number of listener steps, such as opening a log, per turn; 100 take about 2 ms
METADATA_TOPIC_ID = bytes(15) + b"\x01"
Decided: TypeAlias = Decision[R] | Steps[Decision[R]]


def nothing_pending() -> Steps[bool]:
    """Returns False without searching. Used if the data directory cannot contain pending acknowledgements."""
    yield from ()
    return False


def as_decided(decision: Decision[Any]) -> Decision[Any]:
    return decision


@dataclass(slots=True)
class QueuedDecision:
    """A decision waiting for its turn. `answer` resolves when the decision has taken effect."""

    decide: Callable[[MetadataImage], Decided[Any]]
    answer: Deferred[Any]


@dataclass(slots=True)
class Publication:
    """A durable decision that is not completely visible yet. `answer` resolves when everything is visible."""

    answer: Deferred[Any]
    response: object
    steps: Iterator[bool | None]


def nothing_to_prepare(records: Sequence[Message]) -> Callable[[], None]:
    return nothing


def nothing() -> None:
    pass


def at_once(action: Callable[[], None]) -> None:
    action()


class ClusterMetadata:
    """The metadata log and its image. Created by `opening`. Must be used only on the event loop's thread."""

    def __init__(
        self,
        image: MetadataImage,
        metadata_log: Log,
        disk: Disk,
        config: BrokerConfig,
        clock: Clock,
        workers: Workers,
        *,
        node: Node,
        leader_epoch: int,
        later: Callable[[Callable[[], None]], object],
        placed: Callable[[Decision[Any]], Decision[Any]] = as_decided,
        rules: KafkaRules = NEWEST,
    ) -> None:
        """Initialises the object. Other modules must use `opening` instead.

        placed  called with each decision before it is recorded; returns the decision to record instead. If several
                nodes share this log, this function distributes the partitions among the nodes
        rules   the rules of the emulated release; settings that this release does not have are ignored
        """
        self.image = image
        self.node = node
        self.leader_epoch = leader_epoch  # leader epoch of the metadata log
        self.broker_epoch = -1
        self._log = metadata_log
        self._disk = disk
        self._config = config
        self._rules = rules
        self._clock = clock
        self._workers = workers
        self._listeners: list[MetadataListener] = []
        # Called with records that are about to be committed. The thread that syncs them runs the returned function
        # after the sync and before the records are published.
        self.prepare: Callable[[Sequence[Message]], Callable[[], None]] = nothing_to_prepare
        self._placed = placed
        self._later = later
        self._queue: deque[QueuedDecision] = deque()
        self._is_committing = False
        self._steps: Steps[Decision[Any]] | None = None  # steps of the decision in progress
        self._publication: Publication | None = None
        self._holds = 0

    @classmethod
    def opening(
        cls,
        disk: Disk,
        log_directory: LogDirectory,
        config: BrokerConfig,
        clock: Clock,
        workers: Workers,
        *,
        endpoints: Iterable[Listener],
        new_uuid: Callable[[], bytes],
        later: Callable[[Callable[[], None]], object] = at_once,
        first_levels: Mapping[str, int] = FIRST_LEVELS,
        rules: KafkaRules = NEWEST,
        placed: Callable[[Decision[Any]], Decision[Any]] = as_decided,
        stores_pending: Callable[[], Steps[bool]] = nothing_pending,
    ) -> "Steps[ClusterMetadata]":
        """Opens the metadata log, or creates it in a new directory. Then registers this process as a broker and makes
        the broker the leader of its partitions.

        Blocks while waiting for the disk. When all steps are done, `image` is complete and `config` contains its
        dynamic values.

        later           runs an action in another turn of the loop
        first_levels    a new directory's feature levels
        rules           the rules of the emulated release, which determine where a new directory stores these levels
        placed          called with each decision before it is recorded; returns the decision to record instead
        stores_pending  returns whether stored acknowledgements are pending in transactions; only called if an earlier
                        release of Odradek may have stored such acknowledgements
        raises          CorruptMetadata, CannotStart, KafkaError (KAFKA_STORAGE_ERROR) or OSError if the broker cannot
                        start on this directory
        """
        now_ms = clock.now_ms()
        metadata_log = _open_log(log_directory, now_ms)
        image = MetadataImage()
        loader = Loader(image)
        yield from _loading(disk, metadata_log, loader, image)
        if loader.not_understood:
            kinds = ", ".join(f"type {kind} version {version}" for kind, version in sorted(loader.not_understood))
            log.warning("the metadata log has records of a newer Kafka, which are kept but have no effect: %s", kinds)
        _check_features(image, log_directory.releases.newest)
        assert log_directory.meta.directory_id is not None
        node = Node(config.node_id, topic_id_bytes(log_directory.meta.directory_id))
        path = f"{metadata_log.directory}/{QUORUM_STATE}"
        stored_epoch = decode_leader_epoch(disk.read_bytes(path)) if disk.exists(path) else 0
        leader_epoch = max(stored_epoch, metadata_log.leader_epoch) + 1
        disk.replace(path, encode_quorum_state(QuorumState(node.node_id, leader_epoch, (node.node_id,))))
        metadata = cls(
            image,
            metadata_log,
            disk,
            config,
            clock,
            workers,
            node=node,
            leader_epoch=leader_epoch,
            later=later,
            placed=placed,
            rules=rules,
        )
        metadata_log.assign_leader_epoch(leader_epoch)
        metadata._stage_control(now_ms)
        if loader.is_in_transaction:
            yield from metadata._committing([AbortTransactionRecord(reason="a new leader")])
        if not image.features:
            formatted = formatted_records(disk, log_directory.path, metadata_log.directory, now_ms, first_levels, rules)
            min_isr = config.current_text("min.insync.replicas") or "1"
            beginning = bootstrap_records([*formatted, *_asked_for(formatted, config)], min_isr)
            yield from metadata._committing(beginning)
        elif config.odradek_share_transactions > image.features.get(SHARE_TRANSACTIONS, 0):
            log.warning(SETTING_IGNORED, SHARE_TRANSACTIONS, config.odradek_share_transactions, SHARE_TRANSACTIONS)
        yield from metadata._taking_over_share_version(loader.earlier_share_version, stores_pending)
        yield from metadata._taking_over(endpoints, new_uuid(), was_clean=log_directory.was_clean)
        metadata._adopt_broker_configs()
        # Kafka cannot read this log without a snapshot. The snapshot is missing if the broker crashed before writing
        # it, or if another program wrote the directory.
        if is_lowered_for_kafka(loader.highest_levels, image.features):
            metadata._write(metadata._snapshot())
        for partition in log_directory.partitions():
            yield
            if is_stray(image, node.node_id, partition, log_directory.topic_id_of(*partition)):
                aside = log_directory.set_aside(*partition, new_uuid().hex())
                log.warning("%s-%d belongs to no known topic; its directory is now named %s", *partition, aside)
        return metadata

    def add_listener(self, listener: MetadataListener) -> None:
        """Adds a listener. Listeners are called in the order in which they were added."""
        self._listeners.append(listener)

    def submit(self, decide: Callable[[MetadataImage], Decided[R]]) -> Deferred[R]:
        """Queues a decision. The returned Deferred resolves to the decision's response once all its changes have taken
        effect. It fails with the KafkaError that `decide` raised, or with KAFKA_STORAGE_ERROR if the decision could not
        be recorded."""
        queued = QueuedDecision(decide, Deferred())
        self._queue.append(queued)
        self._run_turns()
        return queued.answer

    def commit(self, records: Sequence[Message]) -> Deferred[None]:
        """Commits records that need no decision. Returns a Deferred that resolves or fails like the Deferred that
        `submit` returns."""
        return self.submit(lambda image: Decision(None, tuple(records)))

    def hold_until(self, done: Deferred[Any] | None) -> None:
        """Postpones all decisions until `done` resolves or fails. Does nothing if `done` is None. Used if the next
        decision depends on data that must be on disk first."""
        if done is None:
            return

        def go_on(_: Deferred[Any]) -> None:
            self._holds -= 1
            self._run_turns()

        self._holds += 1
        done.when_done(go_on)

    def allocate_producer_ids(self, count: int, then: Callable[[int | KafkaError], None]) -> None:
        """Allocates `count` unused producer ids. Calls `then` with the first id once the allocation is durable, or with
        an error."""
        start_unattended(self._allocate_producer_ids(count, then))

    async def _allocate_producer_ids(self, count: int, then: Callable[[int | KafkaError], None]) -> None:
        try:
            first = await self.submit(
                lambda image: allocate_producer_ids(
                    image, count, node_id=self.node.node_id, broker_epoch=self.broker_epoch
                )
            )
        except KafkaError as error:
            then(error)
        else:
            then(first)

    def close(self) -> None:
        """Runs all steps of `closing`."""
        for _ in self.closing():
            pass

    def closing(self) -> Iterator[None]:
        """Records that this broker has stopped cleanly. Blocks while waiting for the disk. The log itself is closed
        together with its directory.

        raises  LogFailed
        """
        self._holds += 1  # permanently prevents new decisions
        self._steps = None
        while self._publication is not None:
            self._publish_slice()
            yield
        if self._log.offline_reason is None:
            yield from self._committing(fencing_records(self.node, self.broker_epoch))

    def abandon(self) -> None:
        """Stops publishing and recording, because the directory is about to be removed."""
        self._holds += 1
        self._steps = self._publication = None

    def _run_turns(self) -> None:
        while self._queue and not self._is_committing and not self._holds:
            self._is_committing = True
            if self._decide(self._queue.popleft()):
                self._is_committing = False

    # Each of the following methods returns whether the turn has ended. If not, the turn continues and ends with
    # `_committed`.

    def _decide(self, queued: QueuedDecision) -> bool:
        self._steps = self._recording(queued.decide)
        return self._decide_slice(queued)

    def _recording(self, decide: Callable[[MetadataImage], Decided[Any]]) -> Steps[Decision[Any]]:
        """Makes the decision in steps and writes its records to the log."""
        decided = decide(self.image)
        if not isinstance(decided, Decision):
            decided = yield from decided
        decision = self._placed(decided)
        if decision.records:
            yield from self._staging(decision.records)
            self._log.write_staged()
        return decision

    def _decide_slice(self, queued: QueuedDecision) -> bool:
        steps = self._steps
        if steps is None:  # the log has been closed in the meantime
            return False
        try:
            for _ in range(ENTRIES_PER_SLICE):
                next(steps)
        except StopIteration as done:
            self._steps = None
            return self._record_decision(queued, done.value)
        except Exception as error:
            self._steps = None
            queued.answer.fail(error)
            return True
        self._later(partial(self._continue_decision, queued))
        return False

    def _continue_decision(self, queued: QueuedDecision) -> None:
        if self._decide_slice(queued):
            self._committed()

    def _record_decision(self, queued: QueuedDecision, decision: Decision[Any]) -> bool:
        if decision.records:
            self._sync(queued, decision)
            return False
        queued.answer.resolve(decision.response)
        return True

    def _sync(self, queued: QueuedDecision, decision: Decision[Any]) -> None:
        ticket = self._log.start_sync()
        levels = self.image.features
        snapshot = self._snapshot() if is_lowered_for_kafka(levels, levels_after(levels, decision.records)) else None

        prepare = self.prepare(decision.records)

        def sync() -> None:
            ticket.run()
            if ticket.error is not None:
                return
            if snapshot is not None:
                self._write(snapshot)
            prepare()

        def done(outcome: JobResult[None]) -> None:
            self._decision_synced(queued, decision, ticket)

        self._workers.run(sync, done)

    def _snapshot(self) -> MetadataSnapshot:
        snapshot, behind = newest_snapshot(self._disk, self._log)
        return snapshot_for_kafka(
            chain([] if snapshot is None else [snapshot], self._log.reader.scan(behind, self._log.log_end_offset))
        )

    def _write(self, snapshot: MetadataSnapshot) -> None:
        """Writes the snapshot and waits for the disk. If the write fails, the next startup will try again."""
        try:
            self._disk.replace(f"{self._log.directory}/{snapshot.name}", snapshot.content)
        except OSError as error:
            log.warning(
                "%s could not be written, and Kafka does not start in this directory without that file: %s",
                snapshot.name,
                error,
            )

    def _decision_synced(self, queued: QueuedDecision, decision: Decision[Any], ticket: SyncTicket) -> None:
        try:
            self._log.finish_sync(ticket)
        except LogFailed as error:
            log.critical("the metadata log failed, so topics and settings cannot be changed until a restart: %s", error)
            queued.answer.fail(error)
            self._committed()
            return
        self._publication = Publication(queued.answer, decision.response, self._publishing(decision.records))
        self._publish_slice()

    def _publish_slice(self) -> None:
        publication = self._publication
        if publication is None:  # the log has been closed in the meantime
            return
        for step_count, is_slice_over in enumerate(publication.steps):
            if is_slice_over or step_count == STEPS_PER_TURN:
                self._later(self._publish_slice)
                return
        self._publication = None
        publication.answer.resolve(publication.response)
        self._committed()

    def _committed(self) -> None:
        self._is_committing = False
        self._run_turns()

    def _publishing(self, records: Sequence[Message]) -> Iterator[bool | None]:
        """Applies records in slices. Yields True between two slices, and None after each step of a listener."""
        for number, part in enumerate(slices(records)):
            if number:
                yield True
            yield from self._applying(part)

    def _applying(self, records: Sequence[Message]) -> Iterator[None]:
        """Replays all of the records, then calls the listeners in steps."""
        news = replay(self.image, records)
        self.image.next_offset = self._log.high_watermark
        if BROKER_CONFIG in news:
            self._adopt_broker_configs()
        for tell in news.values():
            for listener in self._listeners:
                yield from tell(listener) or ()

    def _adopt_broker_configs(self) -> None:
        configs = self.image.configs
        own = configs.get((ConfigResourceType.BROKER, str(self.node.node_id)), {})
        self._config.set_dynamic(configs.get(DEFAULT_BROKER, {}), own, self._rules)

    def _staging(self, records: Sequence[Message]) -> Iterator[None]:
        """Encodes one record in each step and appends all batches in the last step."""
        level, now_ms = self.image.metadata_version or METADATA_VERSION_OF_NEW, self._clock.now_ms()
        batches = []
        for start in range(0, len(records), MAX_RECORDS):
            values = (encode_record(record, level) for record in records[start : start + MAX_RECORDS])
            batch = yield from record_batch(values, now_ms, leader_epoch=self.leader_epoch)
            batches.append(batch)
        for batch in batches:
            self._log.append(batch, now_ms=now_ms)

    def _stage_control(self, now_ms: int) -> None:
        batch = leader_change_batch(
            leader_id=self.node.node_id,
            voter_ids=[self.node.node_id],
            timestamp_ms=now_ms,
            base_offset=0,
            leader_epoch=self.leader_epoch,
        )
        self._log.append(batch, now_ms=now_ms)

    def _committing(self, records: Sequence[Message]) -> Iterator[None]:
        """Commits records in steps that wait for the disk. Used only when the broker starts and stops, because no
        clients are waiting then."""
        yield from self._staging(records)
        self._log.write_staged()
        ticket = self._log.start_sync()
        ticket.run()
        self._log.finish_sync(ticket)
        yield
        yield from self._applying([record for record in records if type(record).__name__ not in TRANSACTION_BRACKETS])

    def _taking_over_share_version(
        self, earlier: EarlierShareVersion, stores_pending: Callable[[], Steps[bool]]
    ) -> Iterator[None]:
        """Enables odradek.share.transactions if an earlier release of Odradek used share.version 2 for the same
        purpose. Pending acknowledgements in the directory then remain part of their transactions, and clients can
        continue. A crash before the single batch is written changes nothing. After the batch is written, the recorded
        level shows that this step has been done (ADR 35)."""
        levels = self.image.features
        if levels.get(SHARE_VERSION, 0) < EARLIER_LEVEL or SHARE_TRANSACTIONS in levels or earlier.is_decided:
            return
        if not earlier.was_raised and not (yield from stores_pending()):
            return
        record = FeatureLevelRecord(name=SHARE_TRANSACTIONS, feature_level=SHARE_TRANSACTIONS_LEVEL)
        yield from self._committing([record])
        log.warning(SETTING_TAKEN_OVER, SHARE_TRANSACTIONS, SHARE_TRANSACTIONS_LEVEL, SHARE_TRANSACTIONS, SHARE_VERSION)

    def _taking_over(self, endpoints: Iterable[Listener], incarnation_id: bytes, *, was_clean: bool) -> Iterator[None]:
        self._log.write_staged()
        self.broker_epoch = self._log.log_end_offset
        records = registration_records(
            self.node,
            endpoints,
            rack=self._config.broker_rack,
            incarnation_id=incarnation_id,
            broker_epoch=self.broker_epoch,
        )
        yield
        yield from self._committing(records + leadership_records(self.image, self.node, was_clean=was_clean))


SETTING_IGNORED: Final = (
    "%s=%d in the configuration applies only to new data directories. To raise the level of this one, run:"
    " odradek features upgrade --feature %s=1"
)
SETTING_TAKEN_OVER: Final = (
    "%s is now at level %d: an earlier Odradek stored acknowledgements in transactions here under share.version 2,"
    " which Kafka uses for dead-letter queues. Nothing pending is lost. Before Kafka opens this directory,"
    " lower %s to 0, and for Kafka 4.3 also lower %s to 1."
)
TRANSACTION_BRACKETS = frozenset({"BeginTransactionRecord", "EndTransactionRecord", "AbortTransactionRecord"})
OWN_FEATURES: Final = "odradek."
METADATA_VERSION_OF_NEW = SUPPORTED_FEATURES[METADATA_VERSION][1]


def _open_log(log_directory: LogDirectory, now_ms: int) -> Log:
    config = LogConfig(flush_messages=1, cleanup_policy=frozenset())
    if (CLUSTER_METADATA, 0) in log_directory.partitions():
        return log_directory.open_log(CLUSTER_METADATA, 0, METADATA_TOPIC_ID, config, now_ms=now_ms)
    return log_directory.create_log(CLUSTER_METADATA, 0, METADATA_TOPIC_ID, config, now_ms=now_ms)


def _loading(disk: Disk, metadata_log: Log, loader: Loader, image: MetadataImage) -> Iterator[None]:
    """Loads the newest complete snapshot and the part of the log after it, or the whole log if there is no snapshot."""
    snapshot, behind = newest_snapshot(disk, metadata_log)
    if snapshot is not None:
        yield from loader.loading([snapshot], moves_offset=False)
    try:
        yield from loader.loading(metadata_log.reader.scan(behind, checked=True), from_offset=behind)
    except CorruptMetadata as error:
        start = metadata_log.log_start_offset
        path = [each.path() for each in metadata_log.segments if each.base_offset <= max(image.next_offset, start)][-1]
        raise CorruptMetadata(f"{path}: {error}") from error


def _check_features(image: MetadataImage, newest: str) -> None:
    """Raises CorruptMetadata or CannotStart if a feature has an unsupported level.

    newest  the newest release of Odradek that has used the directory, or an empty string
    """
    later = f"Odradek {newest}" if release_order(newest) > release_order(__version__) else ""
    least, most = SUPPORTED_FEATURES[METADATA_VERSION]
    level = image.features.get(METADATA_VERSION)
    if level is not None and level < least:
        raise CorruptMetadata(f"metadata.version {level} is too old; versions {least} to {most} can be read")
    for name, level in image.features.items():
        _, most = SUPPORTED_FEATURES.get(name, (0, 0))
        if name.startswith(OWN_FEATURES) and level > most:
            raise CannotStart(
                f"the data directory has the feature {name} at level {level}, and this Odradek supports levels 0 to"
                f" {most}: start {later or 'the newer Odradek that raised it'}, and lower it there"
            )
        if name not in SUPPORTED_FEATURES:
            raise CannotStart(
                f"the feature {name} is finalised at level {level}, and this release does not know it."
                f" {later or 'A later release or another program'} wrote the directory: start that release, or"
                f" first lower {name} to 0 with it"
            )
        if level > most:
            raise CannotStart(
                f"the feature {name} is finalised at level {level}, and this release knows levels up to {most}."
                f" {later or 'A later release'} wrote the directory: start that release, or first lower {name} with"
                " it, if it allows that"
            )


def _asked_for(formatted: Sequence[Message], config: BrokerConfig) -> list[Message]:
    """Returns the records of features that the configuration enables in a new directory. They are separate from the
    formatting records, because Kafka also reads the formatting records."""
    level = config.odradek_share_transactions
    if not level:
        return []
    if not supports_share_transactions(levels_after({}, formatted)):
        raise CannotStart(
            f"a new data directory cannot start with {SHARE_TRANSACTIONS}={level}. {SHARE_TRANSACTIONS_NEEDS}"
        )
    return [FeatureLevelRecord(name=SHARE_TRANSACTIONS, feature_level=level)]
