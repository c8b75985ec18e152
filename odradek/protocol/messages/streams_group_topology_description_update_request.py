"""StreamsGroupTopologyDescriptionUpdateRequest, versions 0-0. Written by `python -m odradek.protocol.generate`."""

# ruff: noqa: RUF023 (slots are in wire order)

from __future__ import annotations

from odradek.protocol.struct import UNSET, Message, Struct


class StreamsGroupTopologyDescriptionUpdateRequest(Message):
    __slots__ = ("group_id", "member_id", "topology_epoch", "topology_description")
    API_KEY = 93
    MIN_VERSION = 0
    MAX_VERSION = 0
    FLEXIBLE_SINCE = 0

    def __init__(
        self,
        *,
        group_id: str = "",
        member_id: str = "",
        topology_epoch: int = 0,
        topology_description: TopologyDescription = UNSET,
    ) -> None:
        self.group_id = group_id
        self.member_id = member_id
        self.topology_epoch = topology_epoch
        self.topology_description = TopologyDescription() if topology_description is UNSET else topology_description


class TopologyDescription(Struct):
    __slots__ = ("subtopologies", "global_stores")

    def __init__(
        self,
        *,
        subtopologies: list[TopologyDescriptionSubtopology] = UNSET,
        global_stores: list[TopologyDescriptionGlobalStore] = UNSET,
    ) -> None:
        self.subtopologies = [] if subtopologies is UNSET else subtopologies
        self.global_stores = [] if global_stores is UNSET else global_stores


class TopologyDescriptionSubtopology(Struct):
    __slots__ = ("subtopology_id", "nodes")

    def __init__(
        self,
        *,
        subtopology_id: str = "",
        nodes: list[TopologyDescriptionNode] = UNSET,
    ) -> None:
        self.subtopology_id = subtopology_id
        self.nodes = [] if nodes is UNSET else nodes


class TopologyDescriptionNode(Struct):
    __slots__ = ("name", "node_type", "source_topics", "sink_topic", "stores", "successors")

    def __init__(
        self,
        *,
        name: str = "",
        node_type: int = 0,
        source_topics: list[str] = UNSET,
        sink_topic: str | None = None,
        stores: list[str] = UNSET,
        successors: list[str] = UNSET,
    ) -> None:
        self.name = name
        self.node_type = node_type
        self.source_topics = [] if source_topics is UNSET else source_topics
        self.sink_topic = sink_topic
        self.stores = [] if stores is UNSET else stores
        self.successors = [] if successors is UNSET else successors


class TopologyDescriptionGlobalStore(Struct):
    __slots__ = ("source", "processor")

    def __init__(
        self,
        *,
        source: TopologyDescriptionNode = UNSET,
        processor: TopologyDescriptionNode = UNSET,
    ) -> None:
        self.source = TopologyDescriptionNode() if source is UNSET else source
        self.processor = TopologyDescriptionNode() if processor is UNSET else processor
