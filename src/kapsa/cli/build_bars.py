"""Progress bars for a build of the real control plane."""

from __future__ import annotations

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from kapsa.devcluster.real.build import BinaryBuildProgress, describe

__all__ = ["BuildBars"]


class BuildBars:
    """Progress bars, shown from the first report until the last executable is built."""

    def __init__(self) -> None:
        self._bars: Progress | None = None
        self._tasks: dict[str, TaskID] = {}

    def __call__(self, progress: BinaryBuildProgress) -> None:
        bars = self._bars or self._open()
        description = describe(progress)
        if progress.binary not in self._tasks:
            self._tasks[progress.binary] = bars.add_task(description, total=None)
        total = progress.packages_total or None
        bars.update(
            self._tasks[progress.binary], description=description, total=total, completed=progress.packages
        )
        if progress.step == "done" and progress.number == progress.total:
            self.close()

    def close(self) -> None:
        if self._bars is not None:
            self._bars.stop()
            self._bars = None

    def _open(self) -> Progress:
        columns = (TextColumn("{task.description}"), BarColumn())
        self._bars = Progress(*columns, console=Console(stderr=True))
        self._bars.start()
        return self._bars
