"""The API versions that a cluster serves, as charts see them in `.Capabilities.APIVersions`."""

from kapsa.runtime import Client

__all__ = ["read_api_versions"]

_MOST = 5000
"""More than any cluster has. Each becomes an argument of helm."""


async def read_api_versions(client: Client) -> tuple[str, ...]:
    """Return `apps/v1` and `apps/v1/Deployment` for each kind that the cluster serves, sorted."""
    versions: set[str] = set()
    for each in await client.discovery.resources():
        version = f"{each.group}/{each.version}" if each.group else each.version
        versions |= {version, f"{version}/{each.kind}"}
    return tuple(sorted(versions)[:_MOST])
