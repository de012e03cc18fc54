"""The functions, operators and macros of CEL in rules, each with its result and its errors.

A rule that compares a result with a text that no result has always fails, and reports the result in its message.
The message of a rule is its expression, so that a difference names it.
"""

from __future__ import annotations

from typing import Any

from tests.behaviour.conformance.cases.definitions import definition
from tests.behaviour.conformance.cases.requests import CRDS, case, delete, get, post
from tests.behaviour.conformance.exchange import Case

PATH = "/apis/{ns}.kapsa.dev/v1/namespaces/{ns}/values"
CRD = f"{CRDS}/values.{{ns}}.kapsa.dev"


def text(length: int) -> dict[str, Any]:
    return {"type": "string", "maxLength": length}


INTEGER: dict[str, Any] = {"type": "integer"}
PROPERTIES: dict[str, Any] = {
    "i": INTEGER,
    "n": {"type": "number"},
    "s": text(64),
    "b": {"type": "boolean"},
    "ls": {"type": "array", "maxItems": 10, "items": text(20)},
    "li": {"type": "array", "maxItems": 10, "items": INTEGER},
    "set": {"type": "array", "maxItems": 10, "x-kubernetes-list-type": "set", "items": text(20)},
    "objs": {
        "type": "array",
        "maxItems": 10,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"],
        "items": {"type": "object", "required": ["name"], "properties": {"name": text(20), "v": INTEGER}},
    },
    "m": {"type": "object", "maxProperties": 10, "additionalProperties": text(20)},
    "mi": {"type": "object", "maxProperties": 10, "additionalProperties": INTEGER},
    "t": {"type": "string", "format": "date-time"},
    "d": {"type": "string", "format": "duration"},
    "by": {"type": "string", "format": "byte", "maxLength": 50},
    "da": {"type": "string", "format": "date"},
    "ios": {"x-kubernetes-int-or-string": True, "maxLength": 20},
    "ios2": {"x-kubernetes-int-or-string": True, "maxLength": 20},
    "nul": {**text(10), "nullable": True},
    "o": {"type": "object", "properties": {"x": INTEGER, "y": text(10)}},
    "namespace": text(20),
    **dict.fromkeys(("foo-bar", "a.b", "c/d", "_u", "__w", "x__y", "for", "in"), INTEGER),
}
OBJECT: dict[str, Any] = {
    "i": 7,
    "n": 2,
    "s": "Hello World",
    "b": True,
    "ls": ["b", "a", "c", "a"],
    "li": [3, 1, 2, 3],
    "set": ["x", "y"],
    "objs": [{"name": "p", "v": 1}, {"name": "q", "v": 2}],
    "m": {"k1": "v1"},
    "mi": {"b": 2},
    "t": "2024-02-29T13:14:15.123Z",
    "d": "1h30m",
    "by": "aGVsbG8=",
    "da": "2024-03-01",
    "ios": 80,
    "ios2": "50%",
    "nul": None,
    "o": {"x": 5},
    "namespace": "ns1",
    "foo-bar": 1,
    "a.b": 2,
    "c/d": 3,
    "_u": 4,
    "__w": 5,
    "x__y": 6,
    "for": 7,
    "in": 8,
}
"""A value for each property; maps have one entry, because the order of more is random on the real server."""

FAMILIES: dict[str, str] = {
    "names of fields": r"""
self.namespace
self.__namespace__
self.foo__dash__bar
self.a__dot__b
self.c__slash__d
self._u
self.__underscores__w
self.x__underscores__y
self.for
self.__for__
self.__in__
""",
    "int-or-string, null and absent values": r"""
self.m
self.ios
self.ios2
self.ios + 1
self.ios2 + 1
self.ios2.size()
self.ios.size()
self.ios > 1
self.ios2 > 1
self.ios.startsWith('a')
has(self.nul)
self.nul
self.o.y
has(self.o.y)
'k1' in self.m
self.m['k3']
self.m.k3
self.ls[9]
self.ls[-1]
null == null
self.o == self.o
""",
    "types": r"""
type(self.ios)
type(self.o)
type(self.ls)
type(self.t)
type(self.d)
type(1u)
type(type(1))
""",
    "times and durations": r"""
self.t
self.d
self.da
self.t.getFullYear()
self.t.getMonth()
self.t.getDate()
self.t.getDayOfMonth()
self.t.getDayOfWeek()
self.t.getDayOfYear()
self.t.getHours()
self.t.getHours('America/New_York')
self.t.getHours('+05:30')
self.t.getHours('nope')
self.t.getMinutes()
self.t.getSeconds()
self.t.getMilliseconds()
self.d.getHours()
self.d.getMinutes()
self.d.getSeconds()
self.d.getMilliseconds()
self.t + self.d
self.t - self.d
self.t - self.t
self.d + self.d
self.d - duration('3h')
self.da < self.t
[self.t, self.da]
[self.d]
{'a': self.d}
int(self.t)
int(self.d)
string(self.t)
string(self.d)
string(duration('1ms'))
duration('1h') == duration('60m')
duration('1h1.5s')
timestamp('2024-01-01T00:00:00Z') < self.t
timestamp(0)
timestamp('2024-01-01T00:00:00+02:00')
duration(self.s)
timestamp(self.s)
""",
    "numbers": r"""
self.i
self.n
self.s
self.ls
self.by
{'b': 1.5, 'a': 2.0}
[1.5, 1e30]
1.5
1e30
0.000001
1234567.0
100000.5
-0.0
1.0/0.0
-1.0/0.0
0.0/0.0
5 / 2
-5 / 2
5 % -3
-5 % 3
1 / 0
1 % 0
9223372036854775807 + 1
-9223372036854775808 - 1
1u - 2u
5u * 3u
2 * 4611686018427387904
-self.i
-self.n
--5
isQuantity('1')
isQuantity('1 Gi')
""",
    "conversions": r"""
string(1234567.0)
string(1e21)
string(1e-7)
string(0.1)
string(-0.0)
int('12')
int('+5')
int(1.9)
int(-1.9)
uint(5)
uint('5')
double('1.5')
double(3)
bool('true')
string(5u)
string(true)
string(b'abc')
bytes('abc')
int(self.s)
""",
    "comparisons and logic": r"""
'a' in self.ls
1 < 1.5
1u < 2
dyn(1) == 1u
dyn(1) == dyn(1.0)
dyn(1) == dyn('1')
dyn(true) == dyn(1)
[1] == [1]
self.i > 5 ? 'big' : 'small'
!self.b
!!true
true && 1/0 > 0
false && 1/0 > 0
1/0 > 0 && false
true || 1/0 > 0
1/0 > 0 || true
1/0 > 0 || false
""",
    "lists of a list type": r"""
self.set == ['y', 'x']
['y', 'x'] == self.set
self.set + ['x', 'z']
self.ls + ['q']
""",
    "lists": r"""
self.li.isSorted()
self.ls.isSorted()
self.li.sum()
[1.5, 2.5].sum()
[duration('1s'), duration('1m')].sum()
[].sum()
self.li.min()
self.ls.max()
[].max()
self.ls.indexOf('a')
self.ls.lastIndexOf('a')
self.ls.indexOf('zz')
""",
    "regular expressions": r"""
self.ios2.find('[0-9]+')
self.ios.find('[0-9]+')
self.s.find('[A-Z]')
self.s.find('zz')
self.s.findAll('[a-z]+')
self.s.findAll('[a-z]', 2)
self.s.findAll('[a-z]', 0)
self.s.find(self.s)
self.s.matches('^Hello')
matches(self.s, 'World$')
'a'.matches(self.s + '(')
""",
    "urls": r"""
url('https://user:pw@example.com:8080/p%20a/b?x=1&x=2&y=#frag').getScheme()
url('https://user:pw@example.com:8080/p%20a/b?x=1&x=2&y=#frag').getHost()
url('https://user:pw@example.com:8080/p%20a/b?x=1&x=2&y=#frag').getHostname()
url('https://user:pw@example.com:8080/p%20a/b?x=1&x=2&y=#frag').getPort()
url('https://user:pw@example.com:8080/p%20a/b?x=1&x=2&y=#frag').getEscapedPath()
url('https://user:pw@example.com:8080/p%20a/b?x=1&x=2&y=#frag').getQuery()
url('https://[::1]:80/a b').getHostname()
url('https://[::1]:80/a').getHost()
url('/path/x').getHost()
url('/path/x').getEscapedPath()
url('mailto:a@b.c').getScheme()
url('https://example.com/ü').getEscapedPath()
url('https://example.com').getEscapedPath()
url('https://a/') == url('https://a/')
isURL('https://a')
isURL('a')
isURL('/a')
isURL('*')
isURL('http://[fe80::1]/')
isURL('http://a/%zz')
url('example.com').getHost()
url('').getHost()
url(':80').getHost()
url('https://a:b').getHost()
url('https://[::1').getHost()
url('https://a b/').getHost()
url('https://example.com/%zz').getHost()
url(self.s).getHost()
""",
    "addresses and networks": r"""
type(ip('1.2.3.4'))
ip('192.168.0.1').family()
ip('::1').family()
isIP('1.2.3.4')
isIP('x')
ip.isCanonical('::1')
ip.isCanonical('0::1')
ip.isCanonical('x')
ip('127.0.0.1').isLoopback()
ip('0.0.0.0').isUnspecified()
ip('224.0.0.1').isLinkLocalMulticast()
ip('ff02::1').isLinkLocalMulticast()
ip('169.254.1.1').isLinkLocalUnicast()
ip('8.8.8.8').isGlobalUnicast()
ip('255.255.255.255').isGlobalUnicast()
ip('10.0.0.1').isGlobalUnicast()
string(ip('1.2.3.4'))
ip('1.2.3.4') == ip('1.2.3.4')
ip('1.2.3.4') in [ip('1.2.3.4')]
dyn(ip('1.2.3.4')) == dyn('1.2.3.4')
dyn('1.2.3.4') == dyn(ip('1.2.3.4'))
cidr('10.0.0.0/8').containsIP('10.1.1.1')
cidr('10.0.0.0/8').containsIP(ip('11.1.1.1'))
cidr('10.0.0.0/8').containsIP('x')
cidr('10.0.0.0/8').containsIP('::1')
cidr('10.0.0.0/8').containsCIDR('10.1.0.0/16')
cidr('10.0.0.0/8').containsCIDR(cidr('0.0.0.0/0'))
cidr('10.0.0.0/8').containsCIDR('x')
cidr('10.1.2.3/8').ip() == ip('10.1.2.3')
cidr('10.1.2.3/8').masked() == cidr('10.0.0.0/8')
cidr('10.1.2.3/8') == cidr('10.0.0.0/8')
string(cidr('10.1.2.3/8').masked())
cidr('10.1.2.3/8').prefixLength()
isCIDR('1.2.3.0/24')
isCIDR('1.2.3.0/99')
ip('1.2.3').family()
ip('1.2.3.4.5').family()
ip('1.2.3.256').family()
ip('01.2.3.4').family()
ip('1..2.3').family()
ip('1.2.3.a').family()
ip('abc').family()
ip('').family()
ip('%eth0').family()
ip('fe80::1%eth0').family()
ip('::ffff:1.2.3.4').family()
ip('1::2::3').family()
ip('12345::').family()
ip('1:2:3').family()
ip(':1').family()
ip('1:').family()
ip('1:2:3:4:5:6:7:8:9').family()
ip('g::1').family()
cidr('10.0.0.0').prefixLength()
cidr('10.0.0.0/33').prefixLength()
cidr('10.0.0.0/08').prefixLength()
cidr('10.0.0.0/x').prefixLength()
cidr('x/8').prefixLength()
cidr('::ffff:1.2.3.4/96').prefixLength()
cidr('fe80::%a/64').prefixLength()
""",
    "quantities": r"""
type(quantity('1'))
quantity('1Gi') == quantity('1024Mi')
quantity('1.5').isInteger()
quantity('1').isInteger()
quantity('1e3').asInteger()
quantity('1.5').asInteger()
quantity('100m').asApproximateFloat()
quantity('9999999999999999999').isInteger()
sign(quantity('-5'))
quantity('1k').add(quantity('1')).asInteger()
quantity('1k').add(5).asInteger()
quantity('1k').sub(quantity('1')).asInteger()
quantity('1k').sub(5).asInteger()
quantity('1').add(quantity('1')) == quantity('2')
quantity('2') == quantity('1').add(quantity('1'))
quantity('1').compareTo(quantity('2'))
quantity('1').isLessThan(quantity('2'))
quantity('1').isGreaterThan(quantity('2'))
quantity('x').isInteger()
quantity('').isInteger()
quantity('1.2.3').isInteger()
quantity('1Gx').isInteger()
""",
    "versions": r"""
semver('1.2.3').major()
semver('1.2.3').minor()
semver('1.2.3').patch()
semver('1.2.3-rc.1').isLessThan(semver('1.2.3'))
semver('1.2.3').isGreaterThan(semver('1.2.3-rc.1'))
semver('1.2.3-rc.2').compareTo(semver('1.2.3-rc.10'))
semver('1.2.3-rc').compareTo(semver('1.2.3-1'))
semver('1.2.3+b') == semver('1.2.3')
semver('v1.2', true).minor()
semver('v01.2.3', true).major()
isSemver('1.2.3')
isSemver('v1', true)
isSemver('v1')
semver('1.2').major()
semver('').major()
semver('01.2.3').major()
semver('1.02.3').major()
semver('1.2.03').major()
semver('a.2.3').major()
semver('1.b.3').major()
semver('1.2.c').major()
semver('1.2.3-').major()
semver('1.2.3-01').major()
semver('1.2.3-a_b').major()
semver('1.2.3+').major()
semver('1.2.3+a_b').major()
semver('1..3').major()
semver('1.2-rc', true).major()
semver('18446744073709551616.0.0').major()
""",
    "sets": r"""
sets.contains([1,2,3],[1])
sets.equivalent([1,1],[1])
sets.intersects([1],[2])
sets.contains(self.ls, ['a'])
""",
    "sorting and slices": r"""
[3,1,2].sort()
self.ls.sort()
self.objs.sortBy(o, -o.v).map(o, o.name)
self.ls.sortBy(x, x.size())
[1,2,3].slice(1,2)
[1,2,3].slice(0,9)
[1,2,3].slice(-1,2)
[[1],[2,3]].flatten()
[[1,[2]],[3]].flatten()
[[[1]],[[2]]].flatten(2)
[[1]].flatten(-1)
self.ls.distinct()
self.ls.reverse()
lists.range(3)
lists.range(-1)
""",
    "strings": r"""
self.s.charAt(0)
self.s.charAt(99)
self.s.indexOf('o')
self.s.indexOf('o', 5)
self.s.indexOf('o', 99)
self.s.indexOf('o', -1)
self.s.indexOf('')
self.s.lastIndexOf('o')
self.s.lastIndexOf('o', 5)
self.s.lastIndexOf('o', 99)
self.s.lastIndexOf('')
self.s.endsWith('World')
self.s.endsWith('')
self.s.endsWith('x' + self.s)
self.s.lowerAscii()
self.s.upperAscii()
self.s.replace('o', '0')
self.s.replace('o', '0', 1)
self.s.replace('', '-')
self.s.replace('', '-', 2)
self.s.split(' ')
self.s.split('')
self.s.split('o', 2)
self.s.split('o', 0)
self.s.split('', 3)
self.s.substring(3)
self.s.substring(3, 5)
self.s.substring(5, 3)
self.s.substring(99)
self.s.substring(-1)
self.s.substring(0, 99)
'  x  '.trim()
strings.quote('a"b\n')
self.ls.join()
self.ls.join('-')
""",
    "format strings": r"""
'%d'.format([5])
'%s and %s'.format(['a', 1])
'%.2f'.format([1234.567])
'%f'.format([1.5])
'%e'.format([1234.5])
'%.3e'.format([0.00012])
'%b'.format([5])
'%b'.format([true])
'%x'.format([255])
'%X'.format(['hi'])
'%o'.format([8])
'%s'.format([[1, 2]])
'%s'.format([{'a': [1.5]}])
'%s'.format([null])
'%s'.format([int])
'%s'.format([b'abc'])
'%%'.format([])
'%d'.format([self.ios])
'%d'.format([self.ios2])
'%s'.format([self.objs])
self.s.format(['a'])
""",
    "macros": r"""
self.li.filter(x, x > 9).min()
self.ls.all(x, x.size() == 1)
self.ls.exists(x, x == 'b')
self.ls.exists_one(x, x == 'b')
self.ls.map(x, x + '!')
self.ls.map(x, x != 'a', x + '!')
self.ls.filter(x, x != 'a')
self.m.all(k, k.startsWith('k'))
self.m.exists(k, self.m[k] == 'v1')
self.mi.filter(k, k == 'a')
self.mi.map(k, k == 'b', self.mi[k])
[1, 2].all(x, 1 / (x - 1) > 0)
[1, 2].exists(x, 1 / (x - 1) > 0)
[1, 2].exists_one(x, 1 / (x - 1) > 0)
[1, 2].map(x, 1 / (x - 1))
[1, 2].map(x, [3].map(y, x * y))
[1, 2].filter(x, [1].exists(y, x == y))
""",
    "macros of two variables": r"""
self.ls.all(i, v, i >= 0 && v != '')
self.ls.exists(i, v, i == 1 && v == 'a')
self.ls.existsOne(i, v, v == 'b')
self.ls.exists_one(i, v, v == 'b')
self.mi.all(k, v, v > 0)
self.mi.exists(k, v, v == 2)
self.ls.transformList(i, v, i > 1, v)
self.mi.transformMap(k, v, v * 2)
self.mi.transformMap(k, v, v > 1, v * 2)
self.mi.transformMapEntry(k, v, {k + 'x': v})
self.mi.transformMapEntry(k, v, {'same': v})
self.mi.transformMapEntry(k, v, v > 1, {string(v): k})
self.ls.transformMap(i, v, v)
""",
    "optional values": r"""
self.?o.?y.orValue('none')
self.?o.y.orValue('none')
self.ls[?0].orValue('z')
self.m[?'k1'].orValue('z')
self.m[?'k9'].hasValue()
[1,2].first().value()
self.li.last().value()
self.li.filter(x, false).first().hasValue()
self.ls.first().orValue('')
optional.of(1).value()
optional.none().hasValue()
optional.of(1).or(optional.of(2)).value()
optional.none().or(optional.of(2)).value()
optional.ofNonZeroValue('').hasValue()
optional.ofNonZeroValue(0).orValue(9)
optional.none().value()
optional.of(self.i).optMap(x, x + 1).value()
optional.of(self.o).optFlatMap(x, x.?x).value()
self.?o.?x.optMap(v, v > 3).orValue(false)
[?optional.of(1), ?optional.none(), 3].size() == 2
optional.unwrap([optional.of(1), optional.none()])
[optional.of(1), optional.none()].unwrapOpt()
self.m.?k1.orValue('')
self.m.?nope.orValue('d')
""",
    "named formats": r"""
format.dns1123Label().validate('ABC').value()
format.dns1123Label().validate('abc').hasValue()
format.dns1123Subdomain().validate('a..b').value()
format.dns1035Label().validate('1a').value()
format.dns1123LabelPrefix().validate('a-').hasValue()
format.dns1123SubdomainPrefix().validate('a.-').value()
format.dns1035LabelPrefix().validate('a-').hasValue()
format.qualifiedName().validate('a/b/c').value()
format.qualifiedName().validate('/b').value()
format.qualifiedName().validate('A_/').value()
format.labelValue().validate('a b').value()
format.uri().validate('x').value()
format.uuid().validate('x').value()
format.byte().validate('!').value()
format.date().validate('x').value()
format.datetime().validate('x').value()
format.named('dns1123Label').value().validate('-').value()
format.named('nope').hasValue()
format.dns1123Label() == format.dns1123Label()
format.dns1123Label().validate('aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa').value()
""",
    "functions that are not offered": r"""
quantity('-5').sign()
'abc'.reverse()
self.ls.existsOne(x, x == 'a')
format.nope()
cel.bind(x, 1, x)
math.greatest(1, 2)
math.abs(-1)
base64.encode(b'a')
jsonpatch.escapeKey('a')
authorizer.path('/').check('get').allowed()
strings.nope('a')
'a'.nope()
""",
    "literals": r"""
oldSelf.i
has(self.m.nope)
[1, 'a']
{'a': 1, 2: 3}
{'a': 1, 'b': 'c'}
int
int == type(1)
google.protobuf.Timestamp == type(self.t)
'\u00e9'.size()
'\x41\101'
r'a\b'
1e3
0x1F
0x1Fu
-9223372036854775808
1 <  2 && 2 < 3
1 == 1 == true
[1,2,3,]
{'a':1,}
""",
    "expressions that do not compile": r"""
nope
self.nope
self.o.nope
request
has(self.nope)
has(self.ls[0])
has(self)
has(self.s, 1)
1 + 'a'
self.i + self.n
self.s == self.i
self.i in self.ls
self.i ? 1 : 2
!self.i
-self.s
self.i && true
self.s[0]
self.ls['a']
self.m[0]
self.i.x
self.t.x
Foo{}
int{}
self.o == {'x': 5}
self{}
b'\xff\u00e9'
9223372036854775808
18446744073709551616u
1 < 2 < 3
'é' + self.nope
self.s.startsWith(1)
self.ls.all(x, x.nope())
duration('x')
timestamp('x')
self.ls.sum()
self.__w
self.x__y
self.`foo-bar`
self.nul == null
duration('90')
timestamp('2024-13-01T00:00:00Z')
int('x')
int(1e30)
uint(-5)
double('x')
bool('x')
string(b'\xff')
1 == 1.0
self.objs + [{'name': 'p', 'v': 9}]
[1,2].indexOf('a')
self.s.find('(')
self.s.findAll('(')
self.s.matches('(')
self.s.matches('(?=a)')
ip('abc')
'%s'.format([ip('1.2.3.4')])
quantity('x')
[[1]].sort()
'abc'.sortBy(x, x)
[1,2,3].slice(2,1)
[1,2].flatten()
[1].join()
'%d'.format(['a'])
'%d'.format([])
'%d'.format([1, 2])
'%q'.format([1])
'%'.format([1])
'%.'.format([1.0])
'%.f'.format([1.0])
'%f'.format([self.i])
'%s'.format([self.o])
'%s'.format([optional.of(1)])
self.ls.all(1, true)
self.ls.all(x.y, true)
self.ls.all(__result__, true)
self.i.all(x, true)
self.ls.transformList(i, v, string(i) + v)
self.ls.all(x, x, true)
self.o.?y
self.ls[?9]
[1,2].first()
optional.of(1).optMap(1, 2)
{?'a': optional.of(1), ?'b': optional.none()}
self.?nope
format.dns1123Label().validate('a.b')
""",
}


REJECTED = ("functions that are not offered", "expressions that do not compile")


def rules_of(expressions: list[str]) -> list[dict[str, str]]:
    """Return a rule for each expression that fails with the expression and its result as the message."""
    return [
        {
            "rule": f"'%s'.format([{expression}]) == '~'",
            "message": expression,
            "messageExpression": f'\'%s = %s\'.format([r"""{expression}""", {expression}])',
        }
        for expression in expressions
    ]


def schema_of(expressions: list[str]) -> dict[str, Any]:
    """Return the schema of a kind with a rule for each expression."""
    rules = rules_of(expressions)
    spec = {"type": "object", "properties": PROPERTIES, "x-kubernetes-validations": rules}
    return {"type": "object", "properties": {"spec": spec}}


def family(name: str, expressions: list[str]) -> Case:
    """Return the case that evaluates expressions on an object; those that do not compile are only sent."""
    sentence = f"CEL in rules: {name}"
    schema = {"openAPIV3Schema": schema_of(expressions)}
    crd = definition("values", "Value", group="{ns}.kapsa.dev", schema=schema)
    if name in REJECTED:
        return case(sentence, post(CRDS, crd, "dryRun=All"))
    value = {
        "apiVersion": "{ns}.kapsa.dev/v1",
        "kind": "Value",
        "metadata": {"name": "one"},
        "spec": OBJECT,
    }
    return case(sentence, post(CRDS, crd), get(PATH, until="ValueList"), post(PATH, value), delete(CRD))


EXPRESSIONS = {name: lines.strip().splitlines() for name, lines in FAMILIES.items()}
CASES = [family(name, expressions) for name, expressions in EXPRESSIONS.items()]
