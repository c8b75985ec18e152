"""The allowed differences between Odradek's and Kafka's responses, with reasons. All other fields must be equal."""

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase

from tests.conformance.differential.conversation import Value


@dataclass(frozen=True, slots=True)
class AllowedDifference:
    """An allowed difference. `asked` and `path` are shell patterns for request labels and field paths. `kafka` and
    `ours` are regular expressions for the values, or None to allow any value."""

    reason: str
    asked: str = "*"
    path: str = "*"
    kafka: str | None = None
    ours: str | None = None

    def covers(self, asked: str, path: str, kafka: Value, ours: Value) -> bool:
        return (
            fnmatchcase(asked, self.asked.replace("[", "[[]"))
            and fnmatchcase(path, self.path.replace("[", "[[]"))
            and (self.kafka is None or re.fullmatch(self.kafka, str(kafka), re.DOTALL) is not None)
            and (self.ours is None or re.fullmatch(self.ours, str(ours), re.DOTALL) is not None)
        )


A_TEXT = r"(?!None$|<absent>$).*"  # an error message, whose wording may differ

# Settings that the two brokers' configurations set differently.
BROKER_SETTINGS = tuple(
    AllowedDifference(reason, asked="the broker: DescribeConfigs*", path=f"results[1].configs{path}")
    for reason, paths in {
        "settings of our own": (".#", "[odradek.*"),
        "addresses and directory of the one and of the other": ("[*listener*", "[log.dirs]*"),
        "ours needs no controller, so its configuration names none": ("[controller.*", "[process.roles]*"),
        "a default for one node, which Kafka has to be given": (
            *("[node.id]*", "[*.replication.factor]*", "[*.min.isr]*", "[group.initial.rebalance.delay.ms]*"),
        ),
    }.items()
    for path in paths
)

TRANSACTIONS = (
    AllowedDifference(
        "known bug 2: a commit that comes after the abort by timeout is fenced, so that the client does not take it "
        "for a fault of its own",
        asked="commit of what is idle after an abort, epoch -1: EndTxnRequest *",
        path="error_code",
        kafka="48",
        ours="90",
    ),
    AllowedDifference("Kafka never answers", asked="no transactions: AddPartitionsToTxnRequest *"),
    AllowedDifference("Kafka never answers a partition named twice", asked="in * entr*: WriteTxnMarkersRequest *"),
    AllowedDifference(
        "Kafka never answers a partition named twice", asked="in * entr*, each", kafka=r"\[\]", ours=".*markers.*"
    ),
    AllowedDifference(
        "nobody writes transactions to the transaction log: Kafka refuses clients only, we everybody",
        asked="the transaction log, as a broker: AddPartitionsToTxnRequest *",
        path="*.partition_error_code",
        kafka="0",
        ours="17",
    ),
    AllowedDifference(
        "internal topics are not written by clients: Kafka first verifies the partition, or adds it, and then refuses",
        asked="the offsets: ProduceRequest *",
        kafka="48|120|Partition was not added to the transaction",
        ours="17|None",
    ),
)

SHARE_STATE = (
    AllowedDifference(
        "a partition named twice is answered twice; Kafka asks for it once",
        asked="a partition twice: *ShareGroupState*",
        path="*.partitions.#",
        kafka="1",
        ours="2",
    ),
    AllowedDifference(
        "with the same start offset the delivery-complete count does not fall, as from Kafka 4.4 on",
        asked="*: ReadShareGroupStateSummaryRequest *",
        path="*.delivery_complete_count",
        kafka="-1|0",
        ours=r"\d+",
    ),
    *(
        AllowedDifference(
            "the start offset does not go back, as from Kafka 4.4 on", asked="a lower start offset, *", path=path
        )
        for path in ("*.start_offset", "*.delivery_complete_count")
    ),
)

SHARE_OFFSETS = (
    AllowedDifference(
        "Kafka fails (UNKNOWN_SERVER_ERROR) where a partition number is negative, or a group id empty",
        asked="*a negative partition: *ShareGroupOffsetsRequest *",
    ),
    AllowedDifference("the same", asked="no group id, one: DescribeShareGroupOffsetsRequest *"),
    AllowedDifference(
        "Kafka asks its share coordinator without end for a partition that there is not",
        asked="no such partition: DescribeShareGroupOffsetsRequest *",
    ),
    AllowedDifference(
        "a partition named twice is answered twice; Kafka asks for it once",
        asked="*a partition twice: DescribeShareGroupOffsetsRequest *",
        path="*.partitions.#",
        kafka="1",
        ours="2",
    ),
)

SHARE_GROUPS = (
    *(
        AllowedDifference(
            "Kafka writes leader 0 at epoch 0 where it has nothing to say, which librdkafka takes for a hint",
            asked=f"*: Share{request}Request v*",
            path=f"responses[*].current_leader.leader_{part}",
            kafka="0",
            ours="-1",
        )
        for request in ("Fetch", "Acknowledge")
        for part in ("id", "epoch")
    ),
    *(
        AllowedDifference(
            "the reason, where Kafka gives the code alone", asked=asked, path="error_message", kafka="None"
        )
        for asked in ("*: ShareFetchRequest v*", "*: ShareAcknowledgeRequest v*")
    ),
    AllowedDifference(
        "Kafka puts an empty range in front where the batch size is 0",
        asked="batches of none: ShareFetchRequest v*",
        path="responses[*].acquired_records*",
    ),
    AllowedDifference(
        "Kafka fails (UNKNOWN_SERVER_ERROR) where there is no such acquire mode; that is INVALID_REQUEST",
        asked="a mode that is none: ShareFetchRequest v*",
        path="error_code",
        kafka="-1",
        ours="42",
    ),
    AllowedDifference(
        "an unknown topic id is an error of its partitions, as from Kafka 4.4 on; Kafka 4.3.1 fails as a whole",
        asked="an unknown topic id: ShareFetchRequest v*",
    ),
    AllowedDifference(
        "a topic that was created again is UNKNOWN_TOPIC_ID by its old id: Kafka 4.3.1 fails as a whole; 4.4.0 says "
        "UNKNOWN_SERVER_ERROR once, and then nothing of that partition",
        asked="again, *: ShareFetchRequest v*",
    ),
)

QUORUM = (
    *(
        AllowedDifference("two metadata logs", asked="the metadata log: DescribeQuorumRequest *", path=path)
        for path in ("*.high_watermark", "*.log_end_offset", "*.leader_epoch")  # Each start increases the leader epoch.
    ),
    AllowedDifference(
        "there is no controller listener", asked="the metadata log: DescribeQuorumRequest v2", path="nodes[*].l*"
    ),
)

REPEATED = (
    *(
        AllowedDifference(
            "of a partition named twice Kafka writes the last batch and answers once; we write and answer each",
            asked=f"batches {asked}",
        )
        for asked in ("*: ProduceRequest *", "*, each", "*: ListOffsetsRequest *")
    ),
    AllowedDifference("Kafka never answers a protocol named twice", asked="a protocol twice*: JoinGroupRequest *"),
)

EMULATED_4_3 = "also while it emulates 4.3, Odradek does what 4.4 does: docs/spec/kafka-4.4.md"

DIFFERENCES: tuple[AllowedDifference, ...] = (
    AllowedDifference(EMULATED_4_3, asked="C4: another takes the first instance id", kafka="111", ours="0"),
    AllowedDifference(
        EMULATED_4_3, asked="2 from 5: Read*Summary*", path="*.delivery_complete_count", kafka="2", ours="4"
    ),
    AllowedDifference(
        EMULATED_4_3, asked="7 from 3: Read*Summary*", path="*.delivery_complete_count", kafka="7", ours="9"
    ),
    AllowedDifference(EMULATED_4_3, asked="7 from 3: Read*Summary*", path="*.start_offset", kafka="3", ours="5"),
    AllowedDifference(
        "our own words; that there are words, and the code they explain, is the same",
        path="*error_message",
        kafka=A_TEXT,
        ours=A_TEXT,
    ),
    AllowedDifference("our own words", path="*batch_index_error_message", kafka=A_TEXT, ours=A_TEXT),
    AllowedDifference(
        "another library compresses: other bytes of the same records",
        asked="content of as-*",
        path="*.records[*].batch_length",
        kafka=r"\d+",
        ours=r"\d+",
    ),
    AllowedDifference("Kafka never answers records that are null; we refuse them", asked="null: ProduceRequest *"),
    AllowedDifference(
        "Kafka leaves the offset deltas of uncompressed records unchecked and would serve the records at other offsets "
        "than it counts; we refuse them",
        asked="*an offset delta of another record: *",
    ),
    AllowedDifference(
        "Kafka fails (UNKNOWN_SERVER_ERROR) where a topic is asked for by neither name nor id; that is INVALID_REQUEST",
        asked="by no id and no name: MetadataRequest *",
    ),
    AllowedDifference(
        "Kafka 4.3.1 has room for one of two topics, and takes them in the order of their hashes",
        asked="in two topics: CreatePartitionsRequest *",
        kafka="-1|0",
        ours="-1|0",
    ),
    AllowedDifference("two brokers, two disks' worth of free space", path="results[*].usable_bytes"),
    AllowedDifference("Kafka does not answer at all", asked="the same twice: AlterConfigsRequest *"),
    AllowedDifference(
        "InitProducerId 6 is served (KIP-939); Kafka has it, and hides it",
        asked="INIT_PRODUCER_ID v6",
        kafka="closed",
        ours="answered .*",
    ),
    AllowedDifference(
        "a member that took another instance id is known by that one; Kafka still takes it by the old one, and back",
        asked="C's old instance: ConsumerGroupHeartbeatRequest *",
    ),
    AllowedDifference(
        "the same, seen in the description",
        asked="A is static: ConsumerGroupDescribeRequest *",
        path="*.instance_id",
        kafka="ic",
        ours="id",
    ),
    AllowedDifference(
        "a classic member is told to rejoin when another one has left; Kafka, where the group may not be downgraded, "
        "leaves the partitions unassigned until a member joins",
        asked="c after the downgrade: HeartbeatRequest *",
        path="error_code",
        kafka="0",
        ours="27",
    ),
    *BROKER_SETTINGS,
    *QUORUM,
    *REPEATED,
    *SHARE_GROUPS,
    *SHARE_OFFSETS,
    *SHARE_STATE,
    *TRANSACTIONS,
)


def reason_for(asked: str, path: str, kafka: Value, ours: Value) -> str | None:
    for allowed in DIFFERENCES:
        if allowed.covers(asked, path, kafka, ours):
            return allowed.reason
    return None
