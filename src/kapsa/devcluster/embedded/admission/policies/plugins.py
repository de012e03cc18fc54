"""The plugins MutatingAdmissionPolicy and ValidatingAdmissionPolicy.

CEL is imported when the first binding exists: a server without any starts sooner.
"""

from __future__ import annotations

from kapsa.devcluster.embedded.admission.plugin import Object, Plugin
from kapsa.devcluster.embedded.admission.policies.catalog import PolicyCatalog
from kapsa.devcluster.embedded.admission.reviewed_requests import reviewed_deletion, reviewed_write
from kapsa.devcluster.embedded.admission.webhook_match import ReviewedRequest
from kapsa.devcluster.embedded.authorization.authorizer import Authorizer
from kapsa.devcluster.embedded.backend import Backend
from kapsa.devcluster.embedded.requests.mutations import DeleteRequest, WriteRequest

__all__ = ["MutatingPolicies", "ValidatingPolicies"]


class MutatingPolicies(Plugin):
    """The MutatingAdmissionPolicy plugin of the real server: changes objects before webhooks see them."""

    def __init__(self, backend: Backend, authorizer: Authorizer) -> None:
        super().__init__(backend)
        self._authorizer = authorizer
        self._catalog = PolicyCatalog(backend, "mutatingadmissionpolicies", "mutatingadmissionpolicybindings")

    async def mutate(self, write: WriteRequest, obj: Object, old: Object | None) -> Object:
        if not self._catalog.bound():
            return obj
        from kapsa.devcluster.embedded.admission.policies.mutation import PolicyMutation

        mutation = PolicyMutation(self._backend, self._authorizer, reviewed_write(write, obj, old))
        return await mutation.run(self._catalog, write.reinvocation)


class ValidatingPolicies(Plugin):
    """The ValidatingAdmissionPolicy plugin of the real server: rejects or warns about writes and deletions."""

    def __init__(self, backend: Backend, authorizer: Authorizer) -> None:
        super().__init__(backend)
        self._authorizer = authorizer
        self._catalog = PolicyCatalog(
            backend, "validatingadmissionpolicies", "validatingadmissionpolicybindings"
        )

    async def validate(self, write: WriteRequest, obj: Object, old: Object | None) -> None:
        if self._catalog.bound():
            await self._check(reviewed_write(write, obj, old), write.warnings)

    async def validate_deletion(self, deletion: DeleteRequest, obj: Object) -> None:
        if self._catalog.bound():
            await self._check(reviewed_deletion(deletion, obj), deletion.warnings)

    async def _check(self, reviewed: ReviewedRequest, warnings: list[str]) -> None:
        from kapsa.devcluster.embedded.admission.policies.validation import PolicyValidation

        await PolicyValidation(self._backend, self._authorizer, reviewed).run(self._catalog, warnings)
