"""Which producers a coordinator outside relies on (Enable2Pc): what is answered to them survives power failure.

The cores of the transaction coordinator say it, as they replay their records; partitions ask, for every transactional
batch. The producer id is what they ask by: a leader that has the transaction open asks nobody for its transactional id.
"""


class TwoPhaseProducers:
    """Producer ids. While some transactional ids are not loaded, any producer may be among them."""

    __slots__ = ("are_all_known", "ids")

    def __init__(self, *, are_all_known: bool) -> None:
        self.are_all_known = are_all_known
        self.ids: set[int] = set()

    def __contains__(self, producer_id: object) -> bool:
        return producer_id in self.ids or not self.are_all_known
