"""Seeds a cluster created by a test, as described by the `seed` field of `POST /clusters` (docs/seed.md)."""

from __future__ import annotations

import asyncio
from collections.abc import Container
from typing import TYPE_CHECKING

from odradek.broker.control.problems import Problem
from odradek.protocol.errors import KafkaError

if TYPE_CHECKING:
    from odradek.broker.control.clusters.clusters import Cluster
    from odradek.seeds.plan import SeedError, SeedPlan

FIELD = "seed"


async def parse_seed(value: object, topics: Container[str]) -> SeedPlan:
    """Parses the `seed` field in a thread, because a megabyte of YAML takes seconds. Raises Problem.

    value   the seed as an object, or as a string in JSON or YAML
    topics  names of the topics in the `topics` field, which the seed must not repeat
    """
    # Imported here because most clusters have no seed.
    from odradek.seeds.document import plan_of_field
    from odradek.seeds.plan import SeedError

    try:
        plan = await asyncio.to_thread(plan_of_field, value, FIELD)
        for topic in plan.topics:
            if topic.name in topics:
                raise topic.place.error(
                    f"the topic {topic.name} is also in the field topics: leave it out of one of them"
                )
    except SeedError as error:
        raise _problem(error) from None
    return plan


async def seed_cluster(cluster: Cluster, plan: SeedPlan) -> None:
    """Adds everything in the seed that the cluster lacks. Raises Problem; anything added before the error remains."""
    # Imported here because most clusters have no seed.
    from odradek.broker.seeds.applying import apply_seed
    from odradek.seeds.plan import SeedError

    async with cluster.change():
        serving = cluster.running
        registry = None if serving.registry is None else serving.registry.service
        try:
            await apply_seed(serving.broker, plan, registry)
        except SeedError as error:
            raise _problem(error) from error
        except KafkaError as error:
            raise Problem(400, f"the seed cannot be applied: {error}", field=FIELD) from error


def _problem(error: SeedError) -> Problem:
    return Problem(400, str(error), field=error.place.field)
