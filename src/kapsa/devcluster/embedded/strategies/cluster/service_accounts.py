"""Service accounts: warnings about deprecated annotations."""

from __future__ import annotations

from kapsa.devcluster.embedded.strategies.generic.builtin import BuiltInStrategy, Object

_ENFORCED = "kubernetes.io/enforce-mountable-secrets"
_WARNING = (
    f"metadata.annotations[{_ENFORCED}]: deprecated in v1.32+; prefer separate namespaces to isolate access to mounted "
    "secrets"
)


class ServiceAccountStrategy(BuiltInStrategy):
    """Strategy of service accounts."""

    def warnings(self, obj: Object, old: Object | None) -> list[str]:
        before = {} if old is None else old["metadata"].get("annotations") or {}
        after = obj["metadata"].get("annotations") or {}
        return [_WARNING] if _ENFORCED in after and _ENFORCED not in before else []
