"""Rate limits per caller, shared by all replicas."""

from datetime import timedelta
from typing import Protocol

import msgspec

__all__ = [
    "CREATE_CLUSTER",
    "CREATE_DEPLOYMENT",
    "LIST_CLUSTERS",
    "LIST_OPERATORS",
    "READ_INVENTORY",
    "WRITES",
    "RateLimit",
    "RateLimits",
]


class RateLimit(msgspec.Struct, frozen=True):
    """At most `requests` in any period of this length."""

    name: str
    requests: int
    period: timedelta = timedelta(minutes=1)


CREATE_DEPLOYMENT = RateLimit("deployments.create", 10)
LIST_OPERATORS = RateLimit("operators.list", 60)
LIST_CLUSTERS = RateLimit("clusters.list", 60)
CREATE_CLUSTER = RateLimit("clusters.create", 5)
READ_INVENTORY = RateLimit("clusters.inventory", 30)
"""Any reader may have the inventory of a cluster taken again, which reads every release in it."""
WRITES = RateLimit("writes", 60)
"""All other requests that change something."""


class RateLimits(Protocol):
    """The counters of all callers."""

    async def hit(self, subject: str, limit: RateLimit) -> int:
        """Count a request. Return 0 if it is within the limit, otherwise the number of seconds until
        one will be allowed.

        A request over the limit is not counted.
        """
        ...
