"""Random histories in the form of the table's cases: a few managers apply, update and patch one object.

A history is a function of its seed, so one that ends differently on two engines can be repeated. Names come
from a tiny alphabet, so that the managers write the same fields.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

Object = dict[str, Any]


class _Dice:
    """The random draws of one history."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def name(self) -> str:
        return self.random.choice("abc")

    def one_of(self, *values: Any) -> Any:
        return self.random.choice(values)

    def some(self, draw: Callable[[], Any], most: int = 3) -> list[Any]:
        return [draw() for _ in range(self.random.randint(0, most))]

    def names(self) -> list[str]:
        return list(dict.fromkeys(self.some(self.name)))

    def by(
        self, keys: tuple[str, ...], draw: Callable[[], Object], defaults: Object | None = None
    ) -> list[Object]:
        """Draw items that differ in their keys."""
        by_key: dict[tuple[Any, ...], Object] = {}
        for item in self.some(draw):
            by_key.setdefault(tuple(item.get(key, (defaults or {}).get(key)) for key in keys), item)
        return list(by_key.values())

    def struct(self, likely: float, **fields: Callable[[], Any]) -> Object:
        """Draw each field with the same probability."""
        return {name: draw() for name, draw in fields.items() if self.chance(likely)}

    def free(self, depth: int = 0) -> Any:
        """Draw any JSON value."""
        if depth > 2 or self.chance(0.3):
            return self.one_of(1, 2, "x", True, 1.5)
        if self.chance(0.2):
            return self.some(lambda: self.one_of(1, 2), 2)
        return {self.name(): self.free(depth + 1) for _ in range(self.random.randint(1, 2))}


def widget_history(seed: int) -> Object:
    """Return a history of the custom kind with all merge rules."""
    dice = _Dice(seed)
    steps = [_widget_step(dice, first=number == 0) for number in range(dice.random.randint(2, 5))]
    return {"name": f"widget {seed}", "kind": "widget", "steps": steps}


def _widget_step(dice: _Dice, *, first: bool) -> Object:
    verb = dice.one_of("apply", "apply", "create") if first else dice.one_of("apply", "apply", "merge", "put")
    step: Object = {"verb": verb, "as": dice.one_of("alice", "bob", "carol")}
    if verb == "apply" and dice.chance(0.6):
        step["force"] = True
    if verb in ("apply", "merge") and not first and dice.chance(0.15):
        conditions = dice.by(("type",), lambda: {"type": dice.name(), "status": dice.one_of("True", "False")})
        return {**step, "to": "status", "status": {"phase": dice.name(), "conditions": conditions}}
    step["spec"] = _widget_spec(dice)
    if verb == "merge" and dice.chance(0.4):
        step["spec"][dice.one_of("tags", "labels", "image", "containers", "nested")] = None
    if dice.chance(0.25):
        step["metadata"] = {"labels": {dice.name(): dice.name()}}
    return step


def _widget_spec(dice: _Dice) -> Object:
    return {
        **dice.struct(
            0.35,
            replicas=lambda: dice.one_of(0, 1, 2),
            image=dice.name,
            paused=lambda: dice.one_of(True, False),
            ratio=lambda: dice.one_of(1, 1.5),
            tags=dice.names,
            labels=lambda: dict.fromkeys(dice.names(), dice.name()),
            containers=lambda: dice.by(("name",), lambda: _widget_container(dice)),
            ports=lambda: dice.by(("port", "protocol"), lambda: _port(dice, "port"), {"protocol": "TCP"}),
        ),
        **dice.struct(
            0.2,
            size=lambda: dice.one_of("small", "medium"),
            note=lambda: dice.one_of("x", None),
            target=lambda: dice.one_of(80, "http"),
            args=lambda: dice.some(dice.name),
            rules=lambda: dice.by(
                ("id",), lambda: {"id": dice.one_of(1, 2), **dice.struct(0.5, allow=dice.name)}
            ),
            selector=lambda: dice.struct(0.5, app=dice.name, tier=dice.name),
            colors=lambda: dict.fromkeys(dice.names(), dice.name()),
            hosts=lambda: {name: dice.struct(0.6, address=dice.name) for name in dice.names()},
            groups=lambda: {name: dice.names() for name in dice.names()},
            nested=lambda: dice.one_of({}, {"one": {}}, {"one": {"two": {"three": dice.name()}}}),
            free=lambda: {name: dice.free() for name in dice.names()},
            anything=dice.free,
            mixed=lambda: dice.struct(0.5, known=dice.name, tags=dice.names, other=dice.free),
        ),
    }


def _widget_container(dice: _Dice) -> Object:
    return {
        "name": dice.name(),
        **dice.struct(
            0.4,
            image=dice.name,
            args=lambda: dice.some(dice.name),
            env=lambda: dice.by(
                ("name",), lambda: {"name": dice.name(), **dice.struct(0.7, value=dice.name)}
            ),
            limits=lambda: {dice.name(): dice.one_of(1, "2")},
        ),
    }


def _port(dice: _Dice, key: str) -> Object:
    optional = dice.struct(0.4, protocol=lambda: dice.one_of("TCP", "UDP"), name=lambda: f"p{dice.name()}")
    return {key: dice.one_of(80, 81), **optional}


def deployment_history(seed: int) -> Object:
    """Return a history of a built-in kind, strategic merge patches included."""
    dice = _Dice(seed)
    steps = [_deployment_step(dice, first=number == 0) for number in range(dice.random.randint(2, 5))]
    return {"name": f"deployment {seed}", "kind": "deployment", "steps": steps}


def _deployment_step(dice: _Dice, *, first: bool) -> Object:
    verbs = ("apply", "apply", "create") if first else ("apply", "apply", "merge", "strategic", "strategic")
    verb = dice.one_of(*verbs)
    spec: Object = dice.struct(
        0.3,
        replicas=lambda: dice.one_of(0, 1, 2),
        strategy=lambda: {
            "rollingUpdate": dice.struct(0.6, maxSurge=lambda: 1, maxUnavailable=lambda: "10%")
        },
        template=lambda: {"spec": _pod_spec(dice, whole=False)},
    )
    if first:
        spec["selector"] = {"matchLabels": {"app": "x"}}
        spec["template"] = {"metadata": {"labels": {"app": "x"}}, "spec": _pod_spec(dice, whole=True)}
    step: Object = {"verb": verb, "as": dice.one_of("alice", "bob", "carol"), "spec": spec}
    if verb == "apply" and dice.chance(0.6):
        step["force"] = True
    if verb == "strategic":
        _add_directives(dice, spec.get("template", {}).get("spec", {}))
    return step


def _pod_spec(dice: _Dice, *, whole: bool) -> Object:
    containers = dice.by(("name",), lambda: _container(dice, whole=whole))
    if whole and not containers:
        containers = [{"name": "a", "image": "i:a"}]
    return {
        "containers": containers,
        **dice.struct(
            0.2,
            tolerations=lambda: [{"key": dice.name(), "operator": "Exists"}],
            nodeSelector=lambda: {dice.name(): dice.name()},
            imagePullSecrets=lambda: dice.by(("name",), lambda: {"name": dice.name()}),
            terminationGracePeriodSeconds=lambda: dice.one_of(5, 30),
            volumes=lambda: dice.by(("name",), lambda: {"name": dice.name(), "emptyDir": {}}),
        ),
    }


def _container(dice: _Dice, *, whole: bool) -> Object:
    optional = dice.struct(
        0.3,
        env=lambda: dice.by(
            ("name",), lambda: {"name": dice.name().upper(), **dice.struct(0.7, value=dice.name)}
        ),
        ports=lambda: dice.by(
            ("containerPort", "protocol"), lambda: _port(dice, "containerPort"), {"protocol": "TCP"}
        ),
        args=lambda: dice.some(dice.name),
        resources=lambda: {"limits": {dice.one_of("cpu", "memory"): dice.one_of("1", "100m", 2)}},
    )
    image = {"image": f"i:{dice.name()}"} if whole or dice.chance(0.6) else {}
    return {"name": dice.name(), **image, **optional}


def _add_directives(dice: _Dice, pod: Object) -> None:
    containers = pod.get("containers")
    if not containers:
        return
    names = [container["name"] for container in containers]
    if dice.chance(0.3):
        containers.append(
            {"name": dice.one_of(*(name for name in "abcd" if name not in names)), "$patch": "delete"}
        )
    if dice.chance(0.3):
        pod["$setElementOrder/containers"] = [{"name": name} for name in names]
