"""Scripts for the transaction coordinator: InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn, EndTxn,
DescribeTransactions, ListTransactions and UpdateFeatures. `level` is the transaction.version of both brokers."""

import time
from collections.abc import Callable
from typing import Any

from odradek.protocol.messages.add_offsets_to_txn_request import AddOffsetsToTxnRequest
from odradek.protocol.messages.add_partitions_to_txn_request import AddPartitionsToTxnRequest
from odradek.protocol.messages.describe_transactions_request import DescribeTransactionsRequest
from odradek.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from odradek.protocol.messages.init_producer_id_request import InitProducerIdRequest
from odradek.protocol.messages.list_transactions_request import ListTransactionsRequest
from odradek.protocol.messages.update_features_request import FeatureUpdateKey, UpdateFeaturesRequest
from tests.conformance.differential.conversation import Talk
from tests.conformance.differential.transactional_client import GROUP, TRANSACTION, Client, partitions_of

LevelScript = Callable[[Talk, int, int], None]
UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3


def wait_for_coordinators(talk: Talk) -> None:
    for kind in (GROUP, TRANSACTION):
        while talk.quietly(FindCoordinatorRequest(key="any", key_type=kind), 3).error_code:
            time.sleep(0.05)


def init_producer_id(talk: Talk, version: int, level: int) -> None:
    name = f"init-{version}-{level}"
    topic = f"{name}-topic"
    talk.make_topic(topic)

    def ask(label: str, transactional_id: str, timeout_ms: int = 60_000, **more: Any) -> Any:
        request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=timeout_ms, **more)
        return talk.ask(label, request, version)

    client = Client(talk, name).init()
    client.note(ask("known id", name))
    for timeout_ms in (0, -1, 900_000, 900_001, 2**31 - 1):
        ask(f"a timeout of {timeout_ms}", f"{name}-timeout", timeout_ms)
    ask("an empty id", "")
    client.note(ask("once more", name))
    ask("a pair without epoch", name, producer_id=client.producer_id)
    ask("an epoch without producer id", name, producer_epoch=3)
    for label, epoch in (("its epoch", 0), ("the epoch before", -1), ("an older epoch", -2), ("a future epoch", 5)):
        identity = {"producer_id": client.producer_id, "producer_epoch": client.epoch + epoch}
        client.note(ask(f"with {label}", name, **identity))
    ask("of another producer id", name, producer_id=client.producer_id + 1_000_000, producer_epoch=0)
    ask("of a new id that tells a pair", f"{name}-unknown", producer_id=client.producer_id, producer_epoch=0)
    for commit in (True, False):
        client.init().begin(topic).end(commit=commit)
        client.note(ask(f"after a transaction ({commit})", name))
        client.note(
            ask(f"again, with its pair ({commit})", name, producer_id=client.producer_id, producer_epoch=client.epoch)
        )
    client.init().begin(topic)
    ask("while a transaction is open", name)
    client.settle()
    client.note(ask("when it is aborted", name))
    talk.ask("what became of it", DescribeTransactionsRequest(transactional_ids=[name]), 0)
    client.init().begin(topic)
    ask("while one is open, with its pair", name, producer_id=client.producer_id, producer_epoch=client.epoch)
    client.settle()
    ask("again with the pair that is fenced", name, producer_id=client.producer_id, producer_epoch=client.epoch)
    talk.ask("in the end", DescribeTransactionsRequest(transactional_ids=[name]), 0)


def add_partitions_to_txn(talk: Talk, version: int, level: int) -> None:
    name = f"add-{version}-{level}"
    topic = f"{name}-topic"
    talk.make_topic(topic, 3)
    client = Client(talk, name).init()
    first, second = partitions_of(topic, 0), partitions_of(topic, 1, 2)

    def ask(label: str, *topics: Any, **more: Any) -> None:
        talk.ask(label, client.add_request(*topics, version=version, **more), version)
        talk.ask(f"state after: {label}", DescribeTransactionsRequest(transactional_ids=[name]), 0)

    refused: dict[str, dict[str, Any]] = {
        "an unknown id": {"transactional_id": f"{name}-unknown"},
        "an empty id": {"transactional_id": ""},
        "another producer id": {"producer_id": client.producer_id + 1_000_000},
        "a producer id of -1": {"producer_id": -1},
        "an older epoch": {"producer_epoch": client.epoch - 1},
        "a future epoch": {"producer_epoch": client.epoch + 1},
    }
    if version >= 4:
        refused = {
            f"{what}, {'verify only' if verify_only else 'add'}": {**fields, "verify_only": verify_only}
            for what, fields in refused.items()
            for verify_only in (False, True)
        }
        ask("verify before anything is open", first, verify_only=True)
    for label, fields in refused.items():
        ask(label, first, **fields)
    ask("nothing")
    ask("an unknown topic", partitions_of("nobody-made-this", 0))
    ask("an unknown partition beside a good one", partitions_of(topic, 0, 9))
    ask("a negative partition", partitions_of(topic, -1))
    if version < 4:
        ask("the transaction log", partitions_of("__transaction_state", 0))
    ask("the offsets", partitions_of("__consumer_offsets", 0))
    ask("one", first)
    ask("the same", first)
    ask("two more and the same", partitions_of(topic, 0, 1, 2))
    for label, fields in refused.items():
        ask(f"{label}, while one is open", first, **fields)
    if version >= 4:
        ask("verify what is in it", first, second, verify_only=True)
        ask("verify what is not", partitions_of(topic, 0), partitions_of("nobody-made-this", 0), verify_only=True)
        ask("verify a partition that is not", partitions_of(topic, 7), verify_only=True)
        other = Client(talk, f"{name}-other").init()
        both = AddPartitionsToTxnRequest(
            transactions=[
                *client.add_request(first, version=4, verify_only=True).transactions,
                *other.add_request(second, version=4).transactions,
                *other.add_request(second, version=4, transactional_id="nobody").transactions,
            ]
        )
        talk.ask("three transactions", both, version)
        internal = (
            Client(talk, f"{name}-internal").init().add_request(partitions_of("__transaction_state", 0), version=4)
        )
        talk.ask("the transaction log, as a broker", internal, version)
        talk.ask("no transactions", AddPartitionsToTxnRequest(transactions=[]), version)
    client.end()
    ask("after the commit", first)
    client.end(commit=False)
    ask("after the abort", second)


def add_offsets_to_txn(talk: Talk, version: int, level: int) -> None:
    wait_for_coordinators(talk)
    name = f"offsets-{version}-{level}"
    client = Client(talk, name).init()

    def ask(label: str, group: str = "a-group", **more: Any) -> None:
        talk.ask(label, AddOffsetsToTxnRequest(**({"group_id": group} | client.pair | more)), version)
        talk.ask(f"state after: {label}", DescribeTransactionsRequest(transactional_ids=[name]), 0)

    ask("an unknown id", transactional_id=f"{name}-unknown")
    ask("an empty id", transactional_id="")
    ask("another producer id", producer_id=client.producer_id + 1_000_000)
    ask("an older epoch", producer_epoch=client.epoch - 1)
    ask("a future epoch", producer_epoch=client.epoch + 1)
    ask("an empty group", "")
    client.end(commit=False) if level < 2 else client.init()
    ask("a group")
    ask("the same")
    ask("another group", "group-b")
    client.end()
    ask("after the commit")
    client.end(commit=False)
    ask("after the abort")


def end_txn(talk: Talk, version: int, level: int) -> None:
    name = f"end-{version}-{level}"
    topic = f"{name}-topic"
    talk.make_topic(topic)

    def ask(client: Client, label: str, **more: Any) -> None:
        answer = talk.ask(label, client.end_request(**more), version)
        if "producer_epoch" not in more:
            client.note_end(answer)
        else:
            client.settle()
        talk.ask(f"state after: {label}", DescribeTransactionsRequest(transactional_ids=[client.id]), 0)

    one = Client(talk, name, version=version).init()
    ask(one, "an unknown id", transactional_id=f"{name}-unknown", producer_epoch=0)
    ask(one, "an empty id", transactional_id="", producer_epoch=0)
    ask(one, "another producer id", producer_id=one.producer_id + 1_000_000, producer_epoch=0)
    for number, first in enumerate((None, True, False)):  # the previous transaction: none, committed, aborted
        for state in ("idle", "open"):
            for commit in (True, False):
                for behind in (0, 1, 2, -1):
                    client = Client(talk, f"{name}-{number}-{state}-{commit}-{behind}", version=version).init()
                    if first is not None:
                        client.begin(topic).end(commit=first)
                    if state == "open":
                        client.begin(topic)
                    before = {None: "nothing", True: "a commit", False: "an abort"}[first]
                    what = "commit" if commit else "abort"
                    label = f"{what} of what is {state} after {before}, epoch {-behind:+d}"
                    ask(client, label, commit=commit, producer_epoch=client.epoch - behind)
                    if behind == 0:
                        client.init()
    ask(one.begin(topic), "commit", commit=True)
    ask(one.begin(topic), "abort", commit=False)


def describe_transactions(talk: Talk, version: int, level: int) -> None:
    name = f"describe-{version}-{level}"
    topic = f"{name}-topic"
    talk.make_topic(topic, 2)
    client = Client(talk, name).init()

    def ask(label: str, *ids: str) -> None:
        talk.ask(label, DescribeTransactionsRequest(transactional_ids=list(ids)), version)

    ask("nobody", f"{name}-unknown")
    ask("none")
    ask("an empty id", "")
    ask("a new one", name)
    ask("one of two", name, f"{name}-unknown")
    ask("the same twice", name, name)
    client.begin(topic, 0, 1)
    ask("an open one", name)
    client.end()
    ask("a committed one", name)
    client.begin(topic).end(commit=False)
    ask("an aborted one", name)


def list_transactions(talk: Talk, version: int, level: int) -> None:
    name = f"list-{version}-{level}"
    topic = f"{name}-topic"
    talk.make_topic(topic)
    client = Client(talk, name).init()
    mine = [client.producer_id]

    def ask(label: str, **more: Any) -> None:
        talk.ask(label, ListTransactionsRequest(**({"producer_id_filters": mine} | more)), version)

    def ask_all(when: str) -> None:
        ask(when)
        for states in (["Ongoing"], ["Empty", "CompleteCommit"], ["ongoing"], ["Dead"], ["Nothing", "Ongoing"], [""]):
            ask(f"{when}, in {states}", state_filters=states)
        for duration in (0, 1, 3_600_000, -5):
            ask(f"{when}, for {duration}", duration_filter=duration)
        for pattern in (name, f"{name[:-1]}.*", "x", "", ".", "[", "(", None, "(?i)LIST.*", f"^{name}$", "*"):
            ask(f"{when}, like {pattern}", transactional_id_pattern=pattern)

    ask_all("new")
    client.begin(topic)
    time.sleep(0.005)
    ask_all("open")
    client.end()
    ask_all("committed")
    ask("of nobody", producer_id_filters=[client.producer_id + 1_000_000])


def update_features(talk: Talk, version: int, level: int) -> None:
    """Sends UpdateFeatures without changing a level. Version 0 has no flag to validate only, so its updates are refused
    or change nothing."""

    def ask(label: str, *updates: tuple[str, int, int], really: bool = False) -> None:
        keys = [
            FeatureUpdateKey(feature=feature, max_version_level=to, allow_downgrade=how > UPGRADE)
            if version == 0
            else FeatureUpdateKey(feature=feature, max_version_level=to, upgrade_type=how)
            for feature, to, how in updates
        ]
        if version == 0 and not really:
            return
        request = UpdateFeaturesRequest(timeout_ms=10_000, feature_updates=keys, validate_only=version > 0)
        talk.ask(label, request, version)

    transaction, metadata = "transaction.version", "metadata.version"
    for how in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        for to in (0, 1, 2):
            ask(f"transaction.version to {to}, type {how}", (transaction, to, how))
        ask(f"too high, type {how}", (transaction, 3, how), really=True)
        ask(f"negative, type {how}", (transaction, -1, how), really=True)
        ask(f"an unknown feature, type {how}", ("nobody.version", 1, how), really=True)
        ask(f"an unknown feature to 0, type {how}", ("nobody.version", 0, how), really=True)
    ask("the level that it has", (transaction, level, UPGRADE), really=True)
    ask("no feature", really=True)
    ask("an unknown type", (transaction, 2, 9))
    ask("type 0", (transaction, 1, 0))
    ask("an empty name", ("", 1, UPGRADE), really=True)
    ask("metadata.version too high", (metadata, 1000, UPGRADE), really=True)
    ask("metadata.version to 0", (metadata, 0, UNSAFE_DOWNGRADE))
    ask("the same twice", (transaction, 1, SAFE_DOWNGRADE), (transaction, 2, UPGRADE))
    ask("one good, one unknown", (transaction, level, UPGRADE), ("nobody.version", 1, UPGRADE), really=True)


SCRIPTS: dict[LevelScript, int] = {
    init_producer_id: 22,
    add_partitions_to_txn: 24,
    add_offsets_to_txn: 25,
    end_txn: 26,
    describe_transactions: 65,
    list_transactions: 66,
    update_features: 57,
}
