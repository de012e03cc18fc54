"""A clock for tests that can be set forward."""

import time
from datetime import UTC, datetime, timedelta


class ManualClock:
    """The system clock, which a test can set forward."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def now(self) -> datetime:
        return datetime.now(UTC) + timedelta(seconds=self.ahead)

    def monotonic(self) -> float:
        return time.monotonic() + self.ahead

    async def sleep(self, seconds: float) -> None:
        self.ahead += seconds
