"""The advisory locks of the fleet: all their numbers, so that no two uses share one by accident."""

import enum

__all__ = ["AdvisoryLock"]

_SPACE = 1801548659
"""The first half of every key. It keeps our locks apart from those of other programs in the database."""


@enum.unique
class AdvisoryLock(enum.Enum):
    """The work that one transaction at a time may do, over all replicas."""

    MIGRATION = 0
    COMMIT_ORDER = 1
    """Taken by a trigger of the first revision, which has the number in its SQL."""
    AUDIT_SEALER = 2
    DEPLOYMENT_SLOTS = 3

    @property
    def key(self) -> tuple[int, int]:
        """The two numbers for `pg_advisory_xact_lock`."""
        return (_SPACE, self.value)
