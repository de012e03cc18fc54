"""The values of an operator on a cluster, from everything that is registered about both."""

from kapsa.fleet.domain.registry.clusters import ManagedCluster
from kapsa.fleet.domain.registry.operators import ManagedOperator
from kapsa.fleet.domain.values import leaf_paths
from kapsa.fleet.orchestrator.ports.plan_sources import LayeredValues
from kapsa.fleet.orchestrator.ports.transactions import Transactions
from kapsa.fleet.orchestrator.registry.adoptions import Adoptions
from kapsa.fleet.orchestrator.registry.operator_secrets import OperatorSecrets

__all__ = ["RegisteredValues"]


class RegisteredValues:
    """A source of values: operator, environment, then the cluster: what an adopted release came with, and its own.

    All values of an adopted release count as secret: nobody has said which of them are not.
    """

    def __init__(self, transactions: Transactions, secrets: OperatorSecrets, adoptions: Adoptions) -> None:
        self._transactions = transactions
        self._secrets = secrets
        self._adoptions = adoptions

    async def layers(self, operator: ManagedOperator, cluster: ManagedCluster) -> LayeredValues:
        """Return the values of an operator on a cluster."""
        async with self._transactions.transaction() as connection:
            stored = await self._secrets.stored_values(connection, operator.id)
            adoption = await self._adoptions.stored(connection, cluster.id, operator.id)
        secret = await self._secrets.open_values(operator.id, stored)
        adopted = await self._adoptions.open_values(adoption)
        environment = operator.environment_values.get(cluster.environment.value, {})
        own = operator.cluster_values.get(cluster.name, {})
        return LayeredValues(
            (operator.values, secret, environment, adopted, own), leaf_paths(secret) | leaf_paths(adopted)
        )
