"""Rate limits in an unlogged table: exact over any period, and shared by all replicas.

A row has the times of the requests within the period, at most as many as the limit allows.
"""

from math import ceil

from sqlalchemy import text

from kapsa.fleet.infrastructure.postgres.database import Database
from kapsa.fleet.orchestrator.ports.requests.rate_limits import RateLimit

__all__ = ["PostgresRateLimits"]

# A time in the future is left by a clock that was set back. It must not lock a caller out.
_RECENT = "h > fleet.now() - :period AND h <= fleet.now() + interval '5 s'"
_COUNT = text(f"""
    INSERT INTO fleet.rate_limit AS r (subject, name, hits, expires_at)
    VALUES (:subject, :name, ARRAY[fleet.now()], fleet.now() + :period)
    ON CONFLICT (subject, name) DO UPDATE SET
      hits = ARRAY(SELECT h FROM unnest(r.hits) h WHERE {_RECENT} ORDER BY h) || fleet.now(),
      expires_at = fleet.now() + :period
    WHERE (SELECT count(*) FROM unnest(r.hits) h WHERE {_RECENT}) < :requests
    RETURNING 1
""")  # noqa: S608 - constant text
_WAIT = text(f"""
    SELECT extract(epoch FROM h + :period - fleet.now())
    FROM fleet.rate_limit r, unnest(r.hits) h
    WHERE subject = :subject AND name = :name AND {_RECENT}
    ORDER BY h DESC OFFSET :requests - 1 LIMIT 1
""")  # noqa: S608 - constant text


class PostgresRateLimits:
    """The counters of all callers."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def hit(self, subject: str, limit: RateLimit) -> int:
        """Count a request. Return 0 if it is within the limit, otherwise the number of seconds until
        one will be allowed.

        A request over the limit is not counted.
        """
        values = {"subject": subject, "name": limit.name, "period": limit.period, "requests": limit.requests}
        async with self._database.transaction() as connection:
            if (await connection.execute(_COUNT, values)).first() is not None:
                return 0
            wait = (await connection.execute(_WAIT, values)).scalar_one_or_none()
        return max(1, ceil(wait or 0))
