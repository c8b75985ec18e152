"""One sentence for each setting that has an effect here, for DescribeConfigs with documentation and for the help of
`odradek`.

Settings without effect have none: Kafka's documentation describes what they do there.
"""

from collections.abc import Mapping

from odradek.broker.configuration.resources import ConfigResourceType

TOPIC: Mapping[str, str] = {
    "cleanup.policy": "What happens to old segments: delete by age and size, compact by key, both; nothing if empty.",
    "compression.gzip.level": "How hard to compress with gzip, where compression.type says gzip.",
    "compression.lz4.level": "How hard to compress with lz4, where compression.type says lz4.",
    "compression.type": "The codec that batches are stored in; producer keeps the one they came with.",
    "compression.zstd.level": "How hard to compress with zstd, where compression.type says zstd.",
    "delete.retention.ms": "How long compaction keeps a tombstone, so that slow readers see the deletion.",
    "file.delete.delay.ms": "How long the files of what was deleted stay on disk.",
    "flush.messages": "After how many records an fdatasync comes before the acknowledgement; 1 means every one.",
    "flush.ms": "After how long unsynced records are synced in the background.",
    "index.interval.bytes": "One index entry for about so many bytes of the log.",
    "max.compaction.lag.ms": "A record is compacted at the latest when it is this old.",
    "max.message.bytes": "The largest batch that a producer may send, as compressed.",
    "message.timestamp.after.max.ms": "How far ahead of the broker's clock a producer's timestamp may lie.",
    "message.timestamp.before.max.ms": "How far behind the broker's clock a producer's timestamp may lie.",
    "message.timestamp.type": "Whose time a record bears: the producer's (CreateTime) or the broker's (LogAppendTime).",
    "min.cleanable.dirty.ratio": "Compaction waits until this share of the log is not compacted yet.",
    "min.compaction.lag.ms": "A record is not compacted before it is this old.",
    "min.insync.replicas": "How many replicas must have a batch sent with acks=all; with one node that is one.",
    "preallocate": "Whether new segments take their whole size on disk at once.",
    "retention.bytes": "Oldest segments are deleted when a partition is larger than this; -1 is no limit.",
    "retention.ms": "Segments are deleted when their newest record is older than this; -1 is no limit.",
    "segment.bytes": "A segment file ends before it would grow beyond this.",
    "segment.index.bytes": "The most that an index file may take; a segment ends when its index is full.",
    "segment.jitter.ms": "Up to so much earlier than segment.ms a segment ends, so that not all end at once.",
    "segment.ms": "A segment ends when its first record is this old, even if it is not full.",
    "unclean.leader.election.enable": "Recorded; with one replica there is nobody else to elect.",
}

GROUP: Mapping[str, str] = {
    "consumer.heartbeat.interval.ms": "How often members of this group shall send a heartbeat.",
    "consumer.session.timeout.ms": "How long a member of this group may be silent before it is put out.",
}

CLIENT_METRICS: Mapping[str, str] = {
    "interval.ms": "How often matching clients shall push their metrics.",
    "match": "Which clients are meant: comma-separated name=expression pairs, all of which must match.",
    "metrics": "Prefixes of the metrics that are wanted; all for an empty entry.",
}

BROKER: Mapping[str, str] = {
    "advertised.listeners": "What clients are told to connect to, where that is not what the broker listens on.",
    "allow.everyone.if.no.acl.found": "Whether anybody may do anything with a resource that no ACL applies to.",
    "authorizer.class.name": "Who decides on the rights of clients: empty, everybody may do everything; the only other"
    " value is org.apache.kafka.metadata.authorizer.StandardAuthorizer.",
    "auto.create.topics.enable": "Whether asking for a topic that does not exist creates it.",
    "broker.rack": "Where the broker stands; clients may prefer what is near.",
    "compression.gzip.level": "The default of the topic setting compression.gzip.level.",
    "compression.lz4.level": "The default of the topic setting compression.lz4.level.",
    "compression.type": "The default of the topic setting compression.type.",
    "compression.zstd.level": "The default of the topic setting compression.zstd.level.",
    "connections.max.idle.ms": "A connection on which nothing happens for so long is closed.",
    "controller.quota.window.num": "How many windows the quota controller_mutation_rate is measured in.",
    "controller.quota.window.size.seconds": "How long each of them is.",
    "controller.listener.names": "Listeners of that name are ignored: this broker needs no controller.",
    "default.replication.factor": "The replication factor of a topic whose creator does not say; one node has one.",
    "delete.topic.enable": "Whether topics can be deleted.",
    "fetch.max.bytes": "The most that an answer to a fetch holds, whatever the client asks for.",
    "group.initial.rebalance.delay.ms": "How long a new group waits for more members before it begins.",
    "group.max.session.timeout.ms": "The longest session timeout that a member may ask for.",
    "group.max.size": "How many members a group may have.",
    "group.min.session.timeout.ms": "The shortest session timeout that a member may ask for.",
    "listener.security.protocol.map": "PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL for each listener.",
    "listeners": "Where the broker listens, as NAME://host:port; an empty host is every interface, port 0 a free one.",
    "log.cleaner.backoff.ms": "How long compaction rests when there is nothing to compact.",
    "log.cleaner.dedupe.buffer.size": "The memory that compaction may take for its table of keys.",
    "log.cleaner.delete.retention.ms": "The default of the topic setting delete.retention.ms.",
    "log.cleaner.enable": "Whether compacted topics are compacted.",
    "log.cleaner.io.buffer.size": "How much compaction reads and writes at a time.",
    "log.cleaner.max.compaction.lag.ms": "The default of the topic setting max.compaction.lag.ms.",
    "log.cleaner.min.cleanable.ratio": "The default of the topic setting min.cleanable.dirty.ratio.",
    "log.cleaner.min.compaction.lag.ms": "The default of the topic setting min.compaction.lag.ms.",
    "log.cleanup.policy": "The default of the topic setting cleanup.policy.",
    "log.dir": "The data directory, where log.dirs does not say.",
    "log.dirs": "The data directory; only one is served.",
    "log.flush.interval.messages": "The default of the topic setting flush.messages.",
    "log.flush.interval.ms": "The default of the topic setting flush.ms.",
    "log.flush.offset.checkpoint.interval.ms": "How often recovery points are written down.",
    "log.flush.scheduler.interval.ms": "The default of flush.ms where log.flush.interval.ms does not say.",
    "log.flush.start.offset.checkpoint.interval.ms": "How often log start offsets are written down.",
    "log.index.interval.bytes": "The default of the topic setting index.interval.bytes.",
    "log.index.size.max.bytes": "The default of the topic setting segment.index.bytes.",
    "log.message.timestamp.after.max.ms": "The default of the topic setting message.timestamp.after.max.ms.",
    "log.message.timestamp.before.max.ms": "The default of the topic setting message.timestamp.before.max.ms.",
    "log.message.timestamp.type": "The default of the topic setting message.timestamp.type.",
    "log.preallocate": "The default of the topic setting preallocate.",
    "log.retention.bytes": "The default of the topic setting retention.bytes.",
    "log.retention.check.interval.ms": "How often old segments are looked for.",
    "log.retention.hours": "The default of retention.ms, in hours, where no finer unit is set.",
    "log.retention.minutes": "The default of retention.ms, in minutes, where log.retention.ms does not say.",
    "log.retention.ms": "The default of the topic setting retention.ms.",
    "log.roll.hours": "The default of segment.ms, in hours, where log.roll.ms does not say.",
    "log.roll.jitter.hours": "The default of segment.jitter.ms, in hours, where log.roll.jitter.ms does not say.",
    "log.roll.jitter.ms": "The default of the topic setting segment.jitter.ms.",
    "log.roll.ms": "The default of the topic setting segment.ms.",
    "log.segment.bytes": "The default of the topic setting segment.bytes.",
    "log.segment.delete.delay.ms": "The default of the topic setting file.delete.delay.ms.",
    "max.connection.creation.rate": "How many connections may be made per second; others wait for their turn.",
    "max.connections": "How many connections there may be.",
    "max.connections.per.ip": "How many connections one address may have.",
    "max.connections.per.ip.overrides": "Other limits for some addresses: address:count, comma-separated.",
    "max.incremental.fetch.session.cache.slots": "How many incremental fetch sessions are remembered.",
    "max.request.partition.size.limit": "How many partitions one answer to DescribeTopicPartitions lists.",
    "message.max.bytes": "The default of the topic setting max.message.bytes.",
    "min.insync.replicas": "The default of the topic setting min.insync.replicas.",
    "node.id": "The broker's number in the cluster; a data directory belongs to one.",
    "num.partitions": "How many partitions a topic gets whose creator does not say.",
    "odradek.cluster.id": "The cluster id of a new data directory; otherwise a random one.",
    "odradek.advertise": "What clients are told to connect to, unless advertised.listeners says it: listeners, as"
    " configured; arrival, each client the address that its own connection came in by.",
    "odradek.advertise.published": "What odradek.advertise=arrival tells clients that come through a published port of"
    " the container: [NAME://]host[:port], by default the port of the listener.",
    "odradek.control.enable": "Whether the HTTP port controls clusters, faults and clocks, for tests of clients.",
    "odradek.http.actions": "Whether the page can change something: end transactions, delete records and topics, create"
    " topics, move offsets. Whoever reaches it may do so.",
    "odradek.http.host": "The address on which metrics and health are served; an empty one is every interface.",
    "odradek.authentication.timeout.ms": "How long a TLS handshake may take, and a SASL exchange after it.",
    "odradek.http.security.protocol": "PLAINTEXT, or SSL with the keys in listener.name.http.ssl.* or ssl.*.",
    "odradek.http.token": "Whoever asks the HTTP port for more than health has to have it, as bearer or as password.",
    "odradek.ssl.handshakes.max": "TLS handshakes in flight on a listener; beyond it the oldest are given up.",
    "odradek.ssl.reload.interval.ms": "How often files of keys and certificates are looked at; -1 is never.",
    "odradek.http.port": "The port for metrics and health; 0 takes a free one, -1 is none.",
    "odradek.port": "The port to listen on, in place of that in listeners.",
    "odradek.tail.cache.bytes": "Memory for the newest batches, so that readers at the end need no disk.",
    "odradek.transactional.id.expiration.rules": "Comma-separated prefix=milliseconds: how long a transactional id that"
    " begins so is remembered after its last transaction, in place of transactional.id.expiration.ms.",
    "offset.metadata.max.bytes": "The longest note that may stand beside a committed offset.",
    "offsets.retention.check.interval.ms": "How often expired offsets are looked for.",
    "offsets.retention.minutes": "How long offsets of an empty group are kept.",
    "offsets.topic.compression.codec": "The codec of __consumer_offsets, by its number.",
    "offsets.topic.num.partitions": "How many partitions __consumer_offsets is created with.",
    "offsets.topic.replication.factor": "The replication factor of __consumer_offsets.",
    "offsets.topic.segment.bytes": "The segment size of __consumer_offsets.",
    "producer.id.expiration.check.interval.ms": "How often silent producers are looked for.",
    "producer.id.expiration.ms": "How long a silent producer's sequence numbers are remembered.",
    "queued.max.request.bytes": "How many bytes of requests may wait for their turn; -1 is no limit.",
    "quota.window.num": "How many windows client quotas are measured in, the one that is not over included.",
    "quota.window.size.seconds": "How long each of them is; also the longest throttling for request_percentage.",
    "replica.high.watermark.checkpoint.interval.ms": "How often high watermarks are written down.",
    "socket.listen.backlog.size": "How many connections may wait to be accepted.",
    "socket.receive.buffer.bytes": "The size of a socket's receive buffer; -1 leaves it to the system.",
    "socket.request.max.bytes": "The largest request that is read.",
    "socket.send.buffer.bytes": "The size of a socket's send buffer; -1 leaves it to the system.",
    "super.users": "Principals that may do everything, such as User:admin, separated by semicolons.",
    "transaction.max.timeout.ms": "The longest transaction timeout that a producer may ask for.",
    "transaction.state.log.num.partitions": "How many partitions __transaction_state is created with.",
    "transaction.state.log.segment.bytes": "The segment size of __transaction_state.",
    "transaction.two.phase.commit.enable": "Whether producers may ask for transactions that no timeout ends, so that a"
    " coordinator outside decides them (KIP-939).",
    "transactional.id.expiration.ms": "How long an unused transactional id is remembered.",
}


def documentation_of(resource_type: ConfigResourceType) -> dict[str, str]:
    """Sentences by setting."""
    tables = {
        ConfigResourceType.TOPIC: TOPIC,
        ConfigResourceType.BROKER: BROKER,
        ConfigResourceType.GROUP: GROUP,
        ConfigResourceType.CLIENT_METRICS: CLIENT_METRICS,
    }
    return dict(tables.get(resource_type, {}))
