"""The cost of rules: what the server estimates when a kind is defined, and what an evaluation may cost."""

from __future__ import annotations

from typing import Any

from tests.behaviour.conformance.cases.definitions import definition
from tests.behaviour.conformance.cases.requests import CRDS, case, delete, get, post
from tests.behaviour.conformance.exchange import Case

PATH = "/apis/{ns}.kapsa.dev/v1/namespaces/{ns}/costs"
CRD = f"{CRDS}/costs.{{ns}}.kapsa.dev"


def text(length: int) -> dict[str, Any]:
    return {"type": "string", "maxLength": length}


def items(schema: dict[str, Any], most: int | None = None) -> dict[str, Any]:
    return {"type": "array", "items": schema, **({} if most is None else {"maxItems": most})}


def entries(schema: dict[str, Any], most: int | None = None) -> dict[str, Any]:
    bound = {} if most is None else {"maxProperties": most}
    return {"type": "object", "additionalProperties": schema, **bound}


STRING: dict[str, Any] = {"type": "string"}
INTEGER: dict[str, Any] = {"type": "integer"}
PROPERTIES: dict[str, Any] = {
    "s": STRING,
    "s1": text(1000),
    "s5": text(50000),
    "e": {"type": "string", "enum": ["aaa", "bb"]},
    "by": {"type": "string", "format": "byte"},
    "by5": {"type": "string", "format": "byte", "maxLength": 60000},
    "d": {"type": "string", "format": "duration"},
    "t": {"type": "string", "format": "date-time"},
    "da": {"type": "string", "format": "date"},
    "i": INTEGER,
    "n": {"type": "number"},
    "b": {"type": "boolean"},
    "ios": {"x-kubernetes-int-or-string": True},
    "ios1": {"x-kubernetes-int-or-string": True, "maxLength": 1000},
    "ls": items(STRING),
    "ls1": items(text(100), 1000),
    "li": items(INTEGER),
    "li1": items(INTEGER, 2000),
    "ll": items(items(text(30), 50), 100),
    "lo": items(
        {
            "type": "object",
            "required": ["a", "bb"],
            "properties": {"a": STRING, "bb": INTEGER, "c": text(10)},
        }
    ),
    "lo1": items(
        {"type": "object", "required": ["a"], "properties": {"a": text(20), "l": items(text(10), 20)}}, 500
    ),
    "m": entries(STRING),
    "m1": entries(text(40), 300),
    "mi": entries(INTEGER),
    "mm": entries(entries(INTEGER, 60), 50),
    "o": {"type": "object", "properties": {"x": INTEGER, "s": text(100)}},
}
"""Values of each type, bounded and not: the bounds decide what a rule can cost."""

FAMILIES: dict[str, str] = {
    "operators and fields": r"""
self.s == 'a'
self.s == self.s
self.s5 == self.s5
self.s1 + self.s1 == self.s5
(self.s + self.s).size() > 1
self.s < self.s
self.by == self.by
self.by5 == b'abc'
string(self.by) == self.s
bytes(self.s) == self.by
self.e == 'aaa'
self.d == duration('1s')
self.t < timestamp('2024-01-01T00:00:00Z')
self.ios == 80
self.ios == self.ios
string(self.ios) == self.s
self.ios1 == self.ios1
self.li1.sum() > 1
self.ls.isSorted()
self.ls1.isSorted()
self.ls1.max() == 'a'
self.ls.indexOf('a') == 1
self.s.indexOf('a') == 1
self.li.lastIndexOf(1) == 1
self.m1.size() > 1
self == self
self.o == self.o
self.m == self.m
self.ls == self.ls
self.ls1 == self.ls1
self.lo1 == self.lo1
'a' in self.ls
self.s in self.m
self.ls + self.ls == self.ls
isURL(self.s)
self.?s.orValue('') == 'a'
self.?o.?s.orValue('') == 'a'
self.ls[0] == 'a'
self.ls[0] == self.ls[1]
self.m['a'] == self.m['b']
self.b ? self.s == 'a' : self.s5 == 'b'
dyn(self.s) == 'a'
has(self.s) && has(self.o.s)
{'a': self.s}['a'] == 'b'
oldSelf.s == self.s
type(self.s) == string
int(self.s) > 1
self.s.size() > 1
size(self.ls) > 1
!(self.s == 'a') || self.i > 1
self.i > 1 ? true : false
self.mi == self.mi
""",
    "functions of strings": r"""
self.s.contains(self.s)
self.s5.contains(self.s5)
self.s5.contains('abcdefghijklmnop')
self.s.matches('^[a-z]+$')
self.s5.matches('^[a-z]+([-a-z]*)$')
self.s.matches(self.s)
self.s.startsWith(self.s)
self.s.lowerAscii() == 'a'
self.s5.upperAscii().contains(self.s1)
self.s.replace('a', 'bb').size() > 1
self.s5.replace('ab', 'c').contains('abc')
self.s1.replace('', 'cc').contains('abc')
self.s1.replace(self.s1, 'cc').contains('abcdefghijkl')
self.s.trim().substring(1) == 'a'
self.s.charAt(1) == 'a'
self.s.find('[a-z]+') == 'a'
self.s5.findAll('[a-z]+').size() > 2
'%s'.format([self.s]) == 'a'
self.s.format([self.s]) == 'a'
strings.quote(self.s) == 'a'
strings.quote(self.s5).contains('abcdefghijk')
self.ls1[0].contains(self.ls1[1])
self.m1['a'].contains(self.m1['b'])
(self.b ? self.s1 : self.s5).contains('abcdefghijkl')
dyn(self.s5).contains('abcdefghijkl')
self.ls1.join() == 'a'
self.ls.join(',') == 'a'
""",
    "macros": r"""
self.ls.all(x, x == 'a')
self.ls.all(x, x.contains('abc'))
self.ls1.all(x, self.ls1.all(y, x == y))
self.ls1.all(x, self.ls1.exists_one(y, x == y))
self.ls1.all(x, self.ls1.filter(y, x == y).size() == 1)
self.ls1.all(x, x in self.ls1)
self.ls.map(x, x + 'a').size() > 1
self.ls.exists(x, x.matches('a'))
self.li.all(x, x > 1)
self.li.all(x, self.li.all(y, x == y))
self.li1.all(x, self.li1.all(y, x == y))
self.ll.all(x, x.all(y, y == 'a'))
self.ll.all(x, x.all(y, x.exists(z, z == y)))
self.ll.map(x, x.join(',')).join(';') == 'a'
self.lo.all(x, x.a == 'a' && x.bb > 1)
self.lo.all(x, x.c.startsWith('a'))
self.lo.map(x, x.a).join(',').size() > 1
self.lo1.all(x, x.l.all(y, y == x.a))
self.lo1.all(x, self.lo1.exists(y, y.a == x.a))
self.lo1.filter(x, has(x.l)).map(x, x.l.size()).sum() > 1
self.m.all(k, k == 'a')
self.m.all(k, self.m[k] == 'a')
self.m1.all(k, self.m1[k].contains(k))
self.m1.all(k, self.m1.exists(j, self.m1[k] == self.m1[j]))
self.m1.all(k, v, k == v)
self.mi.exists(k, v, v > 1)
self.mi.transformMap(k, v, v + 1).size() > 1
self.m1.transformList(k, v, k + v).join('').size() > 1
self.m1.transformMapEntry(k, v, {v: k}).all(a, b, a != b)
self.mm.all(k, self.mm[k].all(j, self.mm[k][j] > 1))
self.mm.all(k, v, v.all(j, w, w > 1))
(self.ls1 + self.ls1).all(x, x == 'a')
self.s.split(',').all(x, x == 'a')
self.s1.split(',').all(x, x == 'a')
self.s1.split(',', 5).all(x, x == 'a')
self.s1.findAll('[a-z]+').all(x, x == 'a')
self.?s.optMap(x, x.contains(self.s1)).orValue(true)
(self.b ? self.ls1 : ['a']).all(x, x == 'a')
[self.s, self.s5].all(x, x == 'a')
['a', self.s1].exists(x, x.contains('abcdefghijklmn'))
{'a': self.s1}.all(k, k == 'a')
[1, 2, 3].all(x, self.ls.all(y, y == 'a'))
self.li.all(x, [1, 2, 3].exists(y, y == x))
self.ls.filter(x, x == 'a').all(y, y == 'b')
self.ls1.map(x, x.size()).sum() > 1
self.ls1.map(x, x).all(y, y.contains('abcdefghijklmn'))
self.li1.all(x, self.li1.all(y, self.li1.all(z, x == y || y == z)))
self.ls1.exists(i, v, i == 1 && v == 'a')
self.ls1.transformMap(i, v, v).all(k, v, v == 'a')
""",
    "functions of lists and sets": r"""
self.ll.flatten().size() > 1
sets.contains(self.ls1, self.ls1)
sets.equivalent(self.ls1, self.ls1)
sets.intersects(self.ls, ['a'])
self.li1.sort().size() > 1
self.ls1.sort().size() > 1
self.ls1.distinct().size() > 1
self.li1.distinct().all(x, x > 1)
self.ls1.reverse().all(x, x == 'a')
self.ls1.slice(0, 5).all(x, x == 'a')
self.ls1.slice(0, self.i).all(x, x == 'a')
lists.range(5).all(x, x > 1)
lists.range(self.i).all(x, x > 1)
self.lo1.sortBy(x, x.a).size() > 1
self.lo1.sortBy(x, x.l.size()).all(x, x.a == 'a')
self.ls.first().orValue('') == self.s
self.ls1.last().value().contains('abcdefghijklmn')
""",
    "parsers and named formats": r"""
url(self.s).getHost() == 'a'
url(self.s) == url(self.s)
url(self.s5) == url(self.s5)
ip(self.s).family() == 4
isIP(self.s)
ip.isCanonical(self.s)
cidr(self.s).containsIP(self.s)
cidr(self.s).containsCIDR(self.s)
cidr(self.s).containsIP(ip(self.s))
cidr(self.s) == cidr(self.s)
cidr(self.s).masked().prefixLength() > 1
quantity(self.s).isGreaterThan(quantity('1'))
quantity(self.s) == quantity(self.s)
isQuantity(self.s)
semver(self.s).major() > 1
isSemver(self.s)
format.dns1123Label().validate(self.s).hasValue()
format.dns1123Label().validate(self.s5).hasValue()
format.named(self.s).hasValue()
format.uri() == format.uri()
""",
}


def estimated(sentence: str, expressions: list[str], wrap: Any = None) -> Case:
    """Return the case of a kind with a rule for each expression; `wrap` puts its spec into lists or maps."""
    rules = [{"rule": expression, "message": expression} for expression in expressions]
    spec = {"type": "object", "required": ["i"], "properties": PROPERTIES, "x-kubernetes-validations": rules}
    properties = {"spec": spec if wrap is None else wrap(spec)}
    schema = {"openAPIV3Schema": {"type": "object", "properties": properties}}
    crd = definition("costs", "Cost", group="{ns}.kapsa.dev", schema=schema)
    return case(f"the estimated cost of rules: {sentence}", post(CRDS, crd, "dryRun=All"))


def evaluated(sentence: str, rules: list[str], *sizes: int) -> Case:
    """Return the case of objects with lists of some sizes, whose rules cost accordingly."""
    validations = [{"rule": one, "message": f"rule {index}"} for index, one in enumerate(rules)]
    properties = {"l": items(INTEGER, 600), "s": items(text(20), 600)}
    spec = {"type": "object", "properties": properties, "x-kubernetes-validations": validations}
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}
    crd = definition("costs", "Cost", group="{ns}.kapsa.dev", schema=schema)
    head = {"apiVersion": "{ns}.kapsa.dev/v1", "kind": "Cost", "metadata": {"name": "one"}}
    objects = [
        {**head, "spec": {"l": list(range(size)), "s": [f"a{number}" for number in range(size)]}}
        for size in sizes
    ]
    sent = [post(PATH, body, "dryRun=All") for body in objects]
    return case(
        f"the cost of evaluating rules: {sentence}",
        post(CRDS, crd),
        get(PATH, until="CostList"),
        *sent,
        delete(CRD),
    )


EXPRESSIONS = {name: lines.strip().splitlines() for name, lines in FAMILIES.items()}
WITHOUT_OLD = {name: [line for line in lines if "oldSelf" not in line] for name, lines in EXPRESSIONS.items()}
CASES = [
    *(estimated(name, lines) for name, lines in EXPRESSIONS.items()),
    *(estimated(f"{name}, in a list", lines, items) for name, lines in WITHOUT_OLD.items()),
    *(
        estimated(f"{name}, in a list of seven", lines, lambda spec: items(spec, 7))
        for name, lines in WITHOUT_OLD.items()
    ),
    *(
        estimated(f"{name}, in a map of lists", lines, lambda spec: entries(items(spec, 3), 2))
        for name, lines in WITHOUT_OLD.items()
    ),
    evaluated("one rule costs too much", ["self.l.all(x, self.l.all(y, x + y != -1))"], 300, 370, 380),
    evaluated("an early end is cheaper", ["self.l.all(x, self.l.exists(y, x == y))"], 380, 520, 540),
    evaluated("lists are made", ["self.l.map(x, self.l.filter(y, y > x).size()).sum() >= 0"], 320, 340),
    evaluated(
        "all rules together cost too much",
        [f"self.l.all(x, self.l.all(y, x + y != -{number}))" for number in range(1, 15)],
        330,
    ),
]
