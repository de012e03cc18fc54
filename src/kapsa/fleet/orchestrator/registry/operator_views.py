"""Operators as people see them: without secret values, and without any other value that repeats one."""

import asyncio
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec

from kapsa.fleet.domain.registry.operators import ManagedOperator
from kapsa.fleet.domain.values import MASK, merge_values
from kapsa.fleet.orchestrator.hidden_texts import HiddenTexts, secret_texts, shown_values, texts_at
from kapsa.fleet.orchestrator.registry.operator_secrets import OpenedValues

__all__ = ["shown_operator", "shown_operators"]


_SECONDS = 1.0
"""Time for a list. What is not compared by then is hidden: values of one author must not stop the lists of others."""
_THREAD = ThreadPoolExecutor(max_workers=1, thread_name_prefix="operator-views")
"""A thread of its own, since rollouts need those of the event loop."""


async def shown_operators(
    operators: Sequence[ManagedOperator],
    secrets: Mapping[uuid.UUID, OpenedValues],
    *,
    monotonic: Callable[[], float] = time.monotonic,
) -> list[ManagedOperator]:
    """Return operators for people. `secrets` has the secret values of each, by its id.

    The first one is always shown. The values of those for which no time is left are hidden.
    """

    def shown_in_time() -> list[ManagedOperator]:
        end = monotonic() + _SECONDS
        first = shown_operator(operators[0], secrets.get(operators[0].id, {}))
        others = (
            shown_operator(each, secrets.get(each.id, {}) if monotonic() < end else None)
            for each in operators[1:]
        )
        return [first, *others]

    return await asyncio.get_running_loop().run_in_executor(_THREAD, shown_in_time) if operators else []


def shown_operator(operator: ManagedOperator, secret_values: OpenedValues) -> ManagedOperator:
    """Return an operator for people: a mask in place of each secret value, and of each value that shows one.

    If its secret values cannot be opened, it is unclear what repeats them, and all values are hidden. So they are if
    there is too much to compare.
    """
    paths = frozenset(operator.secret_paths)
    layers = (operator.values, *operator.environment_values.values(), *operator.cluster_values.values())
    hidden = None if secret_values is None else _hidden_texts(layers, paths, secret_values)

    def shown(values: Mapping[str, Any]) -> dict[str, Any]:
        if hidden is None:
            return {MASK: MASK} if values else {}
        return shown_values(values, paths, hidden)[0]

    return msgspec.structs.replace(
        operator,
        values=merge_values(shown(operator.values), _masks(operator.secret_paths)),
        environment_values={name: shown(values) for name, values in operator.environment_values.items()},
        cluster_values={name: shown(values) for name, values in operator.cluster_values.items()},
    )


def _hidden_texts(
    layers: Sequence[Mapping[str, Any]], paths: frozenset[tuple[str, ...]], secret_values: Mapping[str, Any]
) -> HiddenTexts | None:
    """Return what is hidden in all layers of an operator; None if that cannot be compared with all of them."""
    repeated = (text for layer in layers for text in texts_at(layer, paths))
    hidden = HiddenTexts([*secret_texts(secret_values), *repeated])
    return hidden if hidden.affordable(*layers) else None


def _masks(paths: Sequence[tuple[str, ...]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for path in paths:
        node = result
        for key in path[:-1]:
            node = node.setdefault(key, {})
        node[path[-1]] = MASK
    return result
