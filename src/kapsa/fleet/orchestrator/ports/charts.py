"""Charts: fetched from where they are published, and inspected before anything trusts them."""

from collections.abc import Mapping
from typing import Any, Literal, Protocol

import msgspec

from kapsa.fleet.domain.registry.operators import ChartFacts, ChartSource

__all__ = ["ChartCrd", "Charts", "InspectedChart", "RepositoryLogin"]


class RepositoryLogin(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A login for a chart repository or a registry: a user name and password, or a token."""

    username: str = ""
    password: str = ""
    token: str = ""

    def __repr__(self) -> str:
        return "RepositoryLogin(...)"  # the values must not appear in logs


class ChartCrd(msgspec.Struct, frozen=True, rename="camel"):
    """A CRD that a chart brings along."""

    name: str
    location: Literal["crds", "templates", "upload"]
    """The folder of the chart; `upload` if it was stored separately."""
    definition: dict[str, Any]


class InspectedChart(msgspec.Struct, frozen=True):
    """An archive that was checked, linted and rendered."""

    content: bytes
    digest: str
    version: str
    facts: ChartFacts
    crds: tuple[ChartCrd, ...]
    warnings: tuple[str, ...] = ()
    """Warnings of the linter."""

    def __repr__(self) -> str:
        return f"InspectedChart({self.version}, {self.digest})"


class Charts(Protocol):
    """Access to published charts, and their inspection."""

    async def fetch(self, source: ChartSource, version: str, login: RepositoryLogin | None) -> bytes:
        """Return the archive of a version, or of the newest one that is not a prerelease if it is empty.

        Raises InvalidInput with the reason if it cannot be fetched.
        """
        ...

    async def inspect(
        self,
        content: bytes,
        *,
        chart: str,
        version: str,
        namespace: str,
        values: Mapping[str, Any],
        secret_values: Mapping[str, Any],
    ) -> InspectedChart:
        """Check, lint and render an archive that must have this chart, and this version unless it is empty.

        Secret values win over the others, and no message contains them.

        Raises InvalidInput with the reason if it is hostile, malformed, or another chart.
        """
        ...

    async def compare(
        self,
        content: bytes,
        manifest: str,
        *,
        release: str,
        namespace: str,
        values: Mapping[str, Any],
        kubernetes_version: str = "",
        api_versions: tuple[str, ...] = (),
    ) -> tuple[str, ...]:
        """Render an archive, and return the objects in which it differs from a manifest: names, and no content.

        The chart sees a cluster of this version that serves these APIs.

        Raises InvalidInput if it does not render.
        """
        ...
