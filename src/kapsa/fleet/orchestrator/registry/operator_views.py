"""Operators as people see them: without secret values, and without any other value that repeats one."""

import asyncio
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from kapsa.fleet.domain.registry.operators import ManagedOperator
from kapsa.fleet.domain.values import MASK, merge_values
from kapsa.fleet.orchestrator.hidden_texts import secret_texts, shown_values
from kapsa.fleet.orchestrator.registry.operator_secrets import OpenedValues

__all__ = ["shown_operator", "shown_operators"]


async def shown_operators(
    operators: Sequence[ManagedOperator], secrets: Mapping[uuid.UUID, OpenedValues]
) -> list[ManagedOperator]:
    """Return operators for people. `secrets` has the secret values of each, by its id."""
    return await asyncio.to_thread(
        lambda: [shown_operator(each, secrets.get(each.id, {})) for each in operators]
    )


def shown_operator(operator: ManagedOperator, secret_values: OpenedValues) -> ManagedOperator:
    """Return an operator for people: a mask in place of each secret value, and of each value that shows one.

    If its secret values cannot be opened, it is unclear what repeats them, and all values are hidden.
    """

    def shown(values: Mapping[str, Any]) -> dict[str, Any]:
        if secret_values is None:
            return {MASK: MASK} if values else {}
        return shown_values(values, paths, secret_texts(secret_values))[0]

    paths = frozenset(operator.secret_paths)
    return msgspec.structs.replace(
        operator,
        values=merge_values(shown(operator.values), _masks(operator.secret_paths)),
        environment_values={name: shown(values) for name, values in operator.environment_values.items()},
        cluster_values={name: shown(values) for name, values in operator.cluster_values.items()},
    )


def _masks(paths: Sequence[tuple[str, ...]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for path in paths:
        node = result
        for key in path[:-1]:
            node = node.setdefault(key, {})
        node[path[-1]] = MASK
    return result
