"""The producers that an external coordinator relies on (Enable2Pc): what is answered to them survives power failure.

The cores of the transaction coordinator register them as they replay their records; partitions look them up for every
transactional batch. The key is the producer id, because a leader that has the transaction open does not look up its
transactional id.
"""


class TwoPhaseProducers:
    """Producer ids. While some transactional ids are not loaded, any producer may be among them."""

    __slots__ = ("are_all_known", "ids")

    def __init__(self, *, are_all_known: bool) -> None:
        self.are_all_known = are_all_known
        self.ids: set[int] = set()

    def __contains__(self, producer_id: object) -> bool:
        return producer_id in self.ids or not self.are_all_known
