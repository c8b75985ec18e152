"""The views of clusters controlled by tests: the list of clusters, and one cluster with its clock, rules and holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.broker.http.page.served import order_of

if TYPE_CHECKING:
    from odradek.broker.http.page.served import Query, View, ViewedBroker

OFF = "Control is off: start the broker with `odradek serve --control`, or set odradek.control.enable=true."


SORTED_BY = ("id", "state", "bootstrap", "frozen", "rules", "waiting", "ttl_s")


def clusters(served: ViewedBroker, query: Query) -> View:
    """Lists clusters. `find` is a substring of the id; for `sort` and `from`, see `Order`."""
    order = order_of(query, SORTED_BY)
    if served.clusters is None:
        return {"off": OFF, "total": 0, "clusters": []}
    return served.clusters.list(query.get("find", ""), order)


def cluster(served: ViewedBroker, query: Query) -> View:
    """Shows the cluster `id`. Raises KafkaError if the cluster does not exist."""
    return {"off": OFF} if served.clusters is None else served.clusters.show(query["id"])
