"""Generated custom kinds with rules as cert-manager, Gateway API, Prometheus operator, CloudNativePG, Kueue and
Cluster API write them.

A kind consists of a few parts, each with a schema, rules and values that keep or break them. Parts are wrapped in
objects, lists and maps, so that rules meet bounds, correlation and paths of all kinds. Some parts have rules that
the server must reject. What is right is decided by the real server: the corpus states no results.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, NamedTuple

Json = Any
Random = random.Random


class Part(NamedTuple):
    """A schema with rules, and values for it; the first one keeps the rules."""

    schema: dict[str, Json]
    values: list[Json]


class Kind(NamedTuple):
    """A generated kind: the schema of its spec, the first object, other objects, and updates of the first."""

    spec: dict[str, Json]
    first: Json
    others: list[Json]
    updates: list[Json]


def rule(text: str, message: str = "", **more: Json) -> dict[str, Json]:
    return {"rule": text, **({"message": message} if message else {}), **more}


def text(*rules: dict[str, Json], **more: Json) -> dict[str, Json]:
    return {"type": "string", **more, **({"x-kubernetes-validations": list(rules)} if rules else {})}


def struct(properties: dict[str, Json], *rules: dict[str, Json], **more: Json) -> dict[str, Json]:
    validations = {"x-kubernetes-validations": list(rules)} if rules else {}
    return {"type": "object", "properties": properties, **more, **validations}


def items(schema: dict[str, Json], *rules: dict[str, Json], **more: Json) -> dict[str, Json]:
    validations = {"x-kubernetes-validations": list(rules)} if rules else {}
    return {"type": "array", "items": schema, **more, **validations}


def integer(*rules: dict[str, Json], **more: Json) -> dict[str, Json]:
    return {"type": "integer", **more, **({"x-kubernetes-validations": list(rules)} if rules else {})}


# -- immutability ---------------------------------------------------------------------------------------------


def immutable_text(rng: Random) -> Part:
    reason = rng.choice([{}, {"reason": "FieldValueForbidden"}, {"reason": "FieldValueInvalid"}])
    limit = rng.choice([{}, {"maxLength": rng.choice([10, 253])}])
    return Part(text(rule("self == oldSelf", "Value is immutable", **reason), **limit), ["a", "b", ""])


def immutable_field(rng: Random) -> Part:
    path = rng.choice([".issuerRef", ".issuerRef.name"])
    schema = struct(
        {"issuerRef": struct({"name": text(maxLength=63), "kind": text(enum=["Issuer", "ClusterIssuer"])})},
        rule("self.issuerRef == oldSelf.issuerRef", "issuerRef is immutable", fieldPath=path),
    )
    values = [
        {"issuerRef": {"name": name, "kind": kind}} for name, kind in (("x", "Issuer"), ("y", "Issuer"))
    ]
    return Part(schema, [*values, {}, {"issuerRef": {"name": "x"}}])


def set_once(rng: Random) -> Part:
    schema = struct(
        {"host": text(maxLength=100), "port": integer()},
        rule("!has(oldSelf.host) || has(self.host)", "host may not be removed once set"),
        rule("has(self.host) == has(oldSelf.host)", reason="FieldValueRequired", fieldPath=".host"),
    )
    return Part(schema, [{"host": "h", "port": 1}, {"port": 2}, {"host": "g", "port": 1}])


def optional_old_self(rng: Random) -> Part:
    text_ = rng.choice(
        [
            "!oldSelf.hasValue() || self >= oldSelf.value()",
            "oldSelf.optMap(o, self >= o).orValue(true)",
            "oldSelf.hasValue() ? self - oldSelf.value() <= 1 : self == 1",
        ]
    )
    return Part(integer(rule(text_, "must grow", optionalOldSelf=True)), [1, 2, 5, 0])


def optional_old_self_wrong(rng: Random) -> Part:
    text_ = rng.choice(["self > 0", "oldSelf > 1", "oldSelf.hasValue() && self == oldSelf"])
    return Part(integer(rule(text_, optionalOldSelf=True)), [1])


def growing_storage(rng: Random) -> Part:
    schema = struct(
        {"size": text(maxLength=20), "storageClass": text(maxLength=63)},
        rule("isQuantity(self.size)", "size must be a quantity"),
        rule(
            "quantity(self.size).compareTo(quantity(oldSelf.size)) >= 0",
            "size cannot shrink",
            messageExpression="'cannot shrink from ' + oldSelf.size + ' to ' + self.size",
        ),
        required=["size"],
    )
    return Part(schema, [{"size": "1Gi"}, {"size": "2Gi"}, {"size": "512Mi"}, {"size": "x"}, {}])


def version_upgrade(rng: Random) -> Part:
    rules = [
        rule("isSemver(self, true)", "must be a version"),
        rule(
            "!semver(self, true).isLessThan(semver(oldSelf, true))",
            messageExpression="'no downgrade to ' + self",
        ),
        rule("semver(self, true).minor() - semver(oldSelf, true).minor() <= 1", "one minor at a time"),
    ]
    return Part(text(*rules, maxLength=40), ["v1.30.2", "v1.31.0", "v1.29.0", "v1.33.1", "latest", "1.30"])


def append_only(rng: Random) -> Part:
    kind = rng.choice([{"x-kubernetes-list-type": "set"}, {}])
    schema = items(
        text(maxLength=20),
        rule("oldSelf.all(x, x in self)", "entries cannot be removed"),
        maxItems=20,
        **kind,
    )
    return Part(schema, [["a", "b"], ["b", "a", "c"], ["a"], []])


# -- unions and requirements ----------------------------------------------------------------------------------


def union(rng: Random) -> Part:
    names = ["acme", "ca", "vault", "selfSigned"][: rng.randint(2, 4)]
    count = " + ".join(f"(has(self.{name}) ? 1 : 0)" for name in names)
    listed = ", ".join(f"has(self.{name})" for name in names)
    text_ = rng.choice(
        [f"{count} == 1", f"[{listed}].exists_one(x, x)", f"[{listed}].filter(x, x).size() <= 1"]
    )
    schema = struct(
        {name: struct({"url": text()}) for name in names}, rule(text_, "exactly one of the fields")
    )
    return Part(schema, [{names[0]: {}}, {names[0]: {}, names[1]: {"url": "x"}}, {}])


def discriminated(rng: Random) -> Part:
    schema = struct(
        {
            "type": text(enum=["RequestRedirect", "URLRewrite", "RequestMirror"]),
            "requestRedirect": struct({"port": integer()}),
            "urlRewrite": struct({"hostname": text(maxLength=253)}),
        },
        rule(
            "!(has(self.requestRedirect) && self.type != 'RequestRedirect')",
            "filter.requestRedirect must be nil if the filter.type is not RequestRedirect",
        ),
        rule(
            "!(!has(self.urlRewrite) && self.type == 'URLRewrite')",
            reason="FieldValueRequired",
            fieldPath=".urlRewrite",
        ),
        required=["type"],
    )
    values = [
        {"type": "RequestRedirect", "requestRedirect": {"port": 80}},
        {"type": "URLRewrite"},
        {"type": "RequestMirror", "requestRedirect": {}},
        {"type": "Other"},
    ]
    return Part(schema, values)


def optional_chain(rng: Random) -> Part:
    schema = struct(
        {
            "tls": struct(
                {"mode": text(maxLength=20), "options": {"type": "object", "additionalProperties": text()}}
            )
        },
        rule("self.?tls.?mode.orValue('Terminate') in ['Terminate', 'Passthrough']"),
        rule("self.?tls.?options[?'min'].orValue('') != '0'", "no minimum of zero"),
        rule("!self.?tls.hasValue() || self.tls.?mode.optMap(m, m.size() < 12).orValue(true)"),
    )
    return Part(
        schema,
        [{"tls": {"mode": "Terminate"}}, {"tls": {"mode": "None"}}, {"tls": {"options": {"min": "0"}}}, {}],
    )


def range_pair(rng: Random) -> Part:
    low, high = rng.choice([("minReplicas", "maxReplicas"), ("min", "max"), ("from-port", "to-port")])
    a, b = (f"self.{name.replace('-', '__dash__')}" for name in (low, high))
    schema = struct(
        {low: integer(minimum=0), high: integer()},
        rule(
            f"!has({a}) || !has({b}) || {a} <= {b}",
            messageExpression=f"'%d is above %d'.format([{a}, {b}])",
            fieldPath=f".{low}" if "-" not in low else f"['{low}']",
        ),
    )
    return Part(schema, [{low: 1, high: 2}, {low: 3, high: 2}, {high: 1}, {low: -1}])


# -- lists and maps -------------------------------------------------------------------------------------------


def unique_names(rng: Random) -> Part:
    limit = rng.choice([{"maxItems": 16}, {"maxItems": 64}, {"maxItems": 1000}, {}])
    element = struct({"name": text(maxLength=rng.choice([63, 253])), "port": integer()}, required=["name"])
    text_ = rng.choice(
        [
            "self.all(l1, self.exists_one(l2, l1.name == l2.name))",
            "self.map(l, l.name).distinct().size() == self.size()",
            "self.all(i, a, self.all(j, b, i == j || a.name != b.name))",
        ]
    )
    schema = items(element, rule(text_, "names must be unique"), **limit)
    return Part(schema, [[{"name": "a"}, {"name": "b"}], [{"name": "a"}, {"name": "a", "port": 2}], []])


def keyed_transition(rng: Random) -> Part:
    element = struct(
        {"name": text(maxLength=20), "weight": integer()},
        rule("self.weight >= oldSelf.weight", "weight cannot shrink", fieldPath=".weight"),
        required=["name", "weight"],
    )
    keys = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}
    schema = items(element, rule("self == oldSelf || self.size() >= oldSelf.size()"), maxItems=20, **keys)
    one, two = {"name": "a", "weight": 1}, {"name": "b", "weight": 5}
    return Part(
        schema, [[one, two], [two, one], [{"name": "b", "weight": 4}, one], [{"name": "c", "weight": 0}, one]]
    )


def uncorrelatable(rng: Random) -> Part:
    kind = rng.choice([{}, {"x-kubernetes-list-type": "atomic"}, {"x-kubernetes-list-type": "set"}])
    return Part(items(text(rule("self == oldSelf"), maxLength=9), maxItems=3, **kind), [["a"]])


def map_transition(rng: Random) -> Part:
    limit = rng.choice([{"maxProperties": 10}, {}])
    schema = {
        "type": "object",
        "additionalProperties": text(rule("self == oldSelf", "values are immutable"), maxLength=30),
        "x-kubernetes-validations": [rule("self.all(k, k.matches('^[a-z]+$'))", "bad key")],
        **limit,
    }
    return Part(schema, [{"a": "1"}, {"a": "2"}, {"b": "1"}, {"A": "1"}, {}])


def labels(rng: Random) -> Part:
    schema = {
        "type": "object",
        "additionalProperties": text(maxLength=63),
        "maxProperties": rng.choice([8, 64]),
        "x-kubernetes-validations": [
            rule(
                "self.all(key, !format.qualifiedName().validate(key).hasValue())",
                "keys must be label keys",
            ),
            rule(
                "self.all(k, v, !format.labelValue().validate(v).hasValue())", "values must be label values"
            ),
        ],
    }
    return Part(schema, [{"app": "x"}, {"bad key": "x"}, {"app": "not a value!"}, {}])


def nested_lists(rng: Random) -> Part:
    outer, inner = rng.choice([(5, 5), (100, 100), (1000, 1000)])
    schema = items(
        items(text(maxLength=10), maxItems=inner),
        rule("self.all(row, row.all(cell, cell.size() > 0))", "no empty cells"),
        rule("self.map(row, row.size()).max() - self.map(row, row.size()).min() == 0", "rows of one length"),
        maxItems=outer,
    )
    return Part(schema, [[["a"], ["b"]], [["a"], ["b", "c"]], [[""]], []])


def resource_groups(rng: Random) -> Part:
    resource = struct({"name": text(maxLength=30), "nominalQuota": text(maxLength=20)}, required=["name"])
    flavor = struct(
        {"name": text(maxLength=30), "resources": items(resource, maxItems=rng.choice([8, 16]))},
        required=["resources"],
    )
    schema = struct(
        {"coveredResources": items(text(maxLength=30), maxItems=16), "flavors": items(flavor, maxItems=16)},
        rule(
            "self.flavors.all(x, size(x.resources) == size(self.coveredResources))",
            "flavors must have all resources",
        ),
        rule("self.flavors.all(f, f.resources.all(r, r.name in self.coveredResources))"),
        required=["coveredResources", "flavors"],
    )
    good = {"coveredResources": ["cpu"], "flavors": [{"resources": [{"name": "cpu"}]}]}
    short = {"coveredResources": ["cpu", "memory"], "flavors": [{"resources": [{"name": "cpu"}]}]}
    other = {"coveredResources": ["cpu"], "flavors": [{"resources": [{"name": "gpu"}]}]}
    return Part(schema, [good, short, other])


def sorted_ports(rng: Random) -> Part:
    schema = items(
        integer(minimum=1),
        rule("self.isSorted()", "must be sorted"),
        rule("self.sum() < 100000 && self.sort().reverse().first().orValue(1) < 65536"),
        maxItems=rng.choice([10, 100]),
    )
    return Part(schema, [[1, 2], [2, 1], [70000], []])


# -- formats --------------------------------------------------------------------------------------------------


def dns_name(rng: Random) -> Part:
    text_ = rng.choice(
        [
            "self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",
            "!format.dns1123Label().validate(self).hasValue()",
            "format.named('dns1123Subdomain').value().validate(self).orValue([]).size() == 0",
            "self.startsWith('a') && !self.endsWith('-') && !self.contains('..')",
        ]
    )
    message = rng.choice([{}, {"messageExpression": "self + ' is not a name'"}])
    return Part(
        text(rule(text_, "must be a name", **message), maxLength=rng.choice([63, 253])),
        ["abc", "A", "", "a-"],
    )


def address(rng: Random) -> Part:
    text_, values = rng.choice(
        [
            ("isIP(self) && ip(self).family() == 4", ["10.0.0.1", "::1", "x"]),
            ("isCIDR(self)", ["10.0.0.0/8", "10.0.0.0", "10.0.0.0/99"]),
            (
                "cidr(self).prefixLength() >= 16 && cidr('10.0.0.0/8').containsCIDR(self)",
                ["10.1.0.0/16", "11.0.0.0/16", "x"],
            ),
            ("ip.isCanonical(self)", ["::1", "0::1", "bad"]),
            (
                "isURL(self) && url(self).getScheme() in ['https', 'oci']",
                ["https://a", "http://a", "a", "oci://b:1/c"],
            ),
            (
                "url(self).getHostname().endsWith('.svc') && url(self).getPort() != ''",
                ["https://a.svc:1", "https://a.svc", ":"],
            ),
        ]
    )
    return Part(text(rule(text_, "must be an address"), maxLength=200), list(values))


def durations(rng: Random) -> Part:
    kind = rng.choice(["format", "text"])
    field = text(format="duration") if kind == "format" else text(maxLength=20)
    a, b = (
        ("self.duration", "self.renewBefore")
        if kind == "format"
        else ("duration(self.duration)", "duration(self.renewBefore)")
    )
    schema = struct(
        {"duration": field, "renewBefore": field},
        rule(f"{b} < {a}", "renewBefore must be shorter"),
        rule(f"{a} >= duration('1h') && ({a} - {b}).getMinutes() > 5"),
        required=["duration", "renewBefore"],
    )
    pairs = [("90h", "30h"), ("1h", "2h"), ("30m", "1m"), ("x", "1h"), ("1h1m", "1h")]
    return Part(schema, [{"duration": one, "renewBefore": other} for one, other in pairs])


def times(rng: Random) -> Part:
    schema = struct(
        {"start": text(format="date-time"), "end": text(format="date-time"), "day": text(format="date")},
        rule("self.start < self.end", "start must be before end"),
        rule("!has(self.day) || self.day.getFullYear() >= 2020"),
        rule(
            "(self.end - self.start) <= duration('48h')",
            messageExpression="'too long: ' + string(self.end - self.start)",
        ),
    )
    start = "2024-01-01T00:00:00Z"
    values = [
        {"start": start, "end": "2024-01-02T00:00:00Z"},
        {"start": start, "end": "2023-01-02T00:00:00Z"},
        {"start": start, "end": "2024-03-01T00:00:00.5Z", "day": "2019-01-01"},
        {},
    ]
    return Part(schema, values)


def quantities(rng: Random) -> Part:
    text_ = rng.choice(
        [
            "quantity(self).isGreaterThan(quantity('0'))",
            "sign(quantity(self)) > 0 && quantity(self).isInteger()",
            "quantity(self).add(quantity('1')).compareTo(quantity('1Ki')) <= 0",
            "quantity(self).sub(1).asApproximateFloat() < 10.5",
        ]
    )
    return Part(text(rule(text_, "bad quantity"), maxLength=20), ["5", "-1", "2Gi", "1.5", "x", ""])


def int_or_string(rng: Random) -> Part:
    text_ = rng.choice(
        [
            "type(self) == int ? self >= 0 : self.matches('^[0-9]+%$')",
            "type(self) == string || self > 0",
            "self != 0 && self != '0%'",
            "string(self).size() < 4",
        ]
    )
    schema = {"x-kubernetes-int-or-string": True, "x-kubernetes-validations": [rule(text_, "bad value")]}
    if rng.random() < 0.5:
        schema["anyOf"] = [{"type": "integer"}, {"type": "string"}]
    if rng.random() < 0.5:
        schema["maxLength"] = 20
    return Part(schema, [1, "50%", 0, "abcd", "0%"])


# -- other shapes ---------------------------------------------------------------------------------------------


def preserved(rng: Random) -> Part:
    text_ = rng.choice(["self.name != ''", "has(self.name)", "self == oldSelf", "has(self.unknown)"])
    schema = struct(
        {"name": text(maxLength=10)}, rule(text_, "broken"), **{"x-kubernetes-preserve-unknown-fields": True}
    )
    return Part(schema, [{"name": "a", "x": 1}, {"name": "", "x": {"y": [1]}}, {"x": 2}])


def embedded(rng: Random) -> Part:
    text_ = rng.choice(
        [
            "self.kind == 'Pod'",
            "self.apiVersion == 'v1' && self.metadata.name.startsWith('a')",
            "self.metadata.labels.size() > 0",
            "!has(self.metadata.generateName)",
        ]
    )
    schema = struct(
        {"spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
        rule(text_, "not allowed"),
        **{"x-kubernetes-embedded-resource": True},
    )
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "abc"}}
    return Part(schema, [pod, {**pod, "kind": "Job"}, {**pod, "metadata": {"generateName": "b-"}}])


def reserved_names(rng: Random) -> Part:
    name, spelled = rng.choice(
        [
            ("namespace", "namespace"),
            ("namespace", "__namespace__"),
            ("if", "__if__"),
            ("foo-bar", "foo__dash__bar"),
            ("a.b", "a__dot__b"),
            ("a/b", "a__slash__b"),
            ("_x", "_x"),
            ("a__b", "a__underscores__b"),
            ("a__b", "a__b"),
            ("$ref", "ref"),
            ("1st", "st"),
        ]
    )
    schema = struct(
        {name: text(maxLength=9), "z": text()}, rule(f"!has(self.{spelled}) || self.{spelled} != 'x'")
    )
    return Part(schema, [{name: "a"}, {name: "x"}, {}])


def nullable(rng: Random) -> Part:
    schema = struct(
        {"a": text(nullable=True, maxLength=9), "b": integer(default=3), "c": items(text(), nullable=True)},
        rule("!has(self.a) || self.a.size() > 1", "a is too short"),
        rule("self.b > 1"),
        rule("!has(self.c) || self.c.size() < 3"),
    )
    return Part(schema, [{"a": "aa"}, {"a": None}, {"a": "x", "b": 1}, {"c": ["", "", ""]}])


def conditions(rng: Random) -> Part:
    element = struct(
        {
            "type": text(maxLength=30),
            "status": text(enum=["True", "False", "Unknown"]),
            "reason": text(maxLength=60),
        },
        rule("self.status != 'False' || has(self.reason)", "a reason is required", fieldPath=".reason"),
        required=["type", "status"],
    )
    keys = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}
    schema = items(
        element, rule("self.exists(c, c.type == 'Ready')", "Ready is required"), maxItems=8, **keys
    )
    ready = {"type": "Ready", "status": "True"}
    return Part(schema, [[ready], [{"type": "Ready", "status": "False"}], [], [{**ready, "type": "Synced"}]])


def expensive(rng: Random) -> Part:
    length = rng.choice([{}, {"maxLength": 1000}])
    bound = rng.choice([{}, {"maxItems": 100}, {"maxItems": 2000}])
    text_ = rng.choice(
        [
            "self.all(x, self.all(y, x == y || x != y))",
            "self.all(x, x.matches('^[a-z]+$'))",
            "self.join(',').contains('abc')",
            "self.all(x, x.split('/').all(y, y.size() < 10))",
            "self.sort() == self",
            "sets.equivalent(self, self)",
            "self.map(x, x.lowerAscii()).exists(y, y.contains('admin'))",
        ]
    )
    return Part(items(text(**length), rule(text_), **bound), [["a"], ["admin", "b"], []])


def wrong(rng: Random) -> Part:
    text_, more = rng.choice(
        [
            ("self.count > 'a'", {}),
            ("self.missing == 1", {}),
            ("self.count", {}),
            ("self.count >", {}),
            ("self.count > 1 && nope(self.count)", {}),
            ("self.name.startsWith(1)", {}),
            ("self.count > 1", {"messageExpression": "self.count"}),
            ("self.count > 1", {"messageExpression": "self.missing"}),
            ("self.count > 1", {"fieldPath": ".missing"}),
            ("self.count > 1", {"reason": "Nonsense"}),
            ("self.name.matches('(')", {}),
            ("duration(self.name) > duration('x')", {}),
            ("'%d'.format([self.name]) == ''", {}),
            ("[1, 'a'].size() == 2", {}),
            ("cel.bind(x, self.count, x > 1)", {}),
            ("self.count > int('x')", {}),
            ("", {}),
            ("self.count > 1\n&& true", {}),
        ]
    )
    return Part(struct({"count": integer(), "name": text(maxLength=9)}, rule(text_, **more)), [{"count": 2}])


PARTS: list[Callable[[Random], Part]] = [
    immutable_text,
    immutable_field,
    set_once,
    optional_old_self,
    optional_old_self_wrong,
    growing_storage,
    version_upgrade,
    append_only,
    union,
    discriminated,
    optional_chain,
    range_pair,
    unique_names,
    keyed_transition,
    uncorrelatable,
    map_transition,
    labels,
    nested_lists,
    resource_groups,
    sorted_ports,
    dns_name,
    address,
    durations,
    times,
    quantities,
    int_or_string,
    preserved,
    embedded,
    reserved_names,
    nullable,
    conditions,
    expensive,
    wrong,
]
_RARE = (wrong, optional_old_self_wrong, uncorrelatable)


def wrapped(rng: Random, part: Part) -> Part:
    """Put a part into an object, a list or a map, or leave it as it is."""
    shape = rng.choice(["plain", "plain", "plain", "object", "atomic", "keyed", "map"])
    if shape == "object":
        return Part(struct({"inner": part.schema}), [{"inner": value} for value in part.values])
    if shape == "map":
        limit = rng.choice([{"maxProperties": 5}, {}])
        schema = {"type": "object", "additionalProperties": part.schema, **limit}
        return Part(schema, [{"k": value} for value in part.values])
    if shape == "atomic":
        limit = rng.choice([{"maxItems": 5}, {}])
        return Part(items(part.schema, **limit), [[value] for value in part.values])
    if shape == "keyed":
        keys = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["id"], "maxItems": 4}
        element = struct({"id": text(maxLength=9), "value": part.schema}, required=["id"])
        return Part(items(element, **keys), [[{"id": "a", "value": value}] for value in part.values])
    return part


def kind(number: int) -> Kind:
    """Return the kind of a number, always the same."""
    rng = random.Random(number)
    chosen = [
        PARTS[number % len(PARTS)],
        *rng.sample([one for one in PARTS if one not in _RARE], rng.randint(0, 2)),
    ]
    parts = {f"part{index}": wrapped(rng, make(rng)) for index, make in enumerate(chosen)}
    spec = struct({name: part.schema for name, part in parts.items()})
    if rng.random() < 0.3:
        spec["x-kubernetes-validations"] = [rule("has(self.part0)", "part0 is required", fieldPath=".part0")]

    def some() -> dict[str, Json]:
        return {name: rng.choice(part.values) for name, part in parts.items()}

    first = {name: part.values[0] for name, part in parts.items()}
    alone = [{**first, "part0": value} for value in parts["part0"].values[1:]]
    return Kind(spec, first, [*alone, some()], [*alone, some(), some()])
