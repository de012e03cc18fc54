"""CEL expressions with the functions that Kubernetes adds."""

from typing import Any

import pytest

from kapsa.schemas.cel.expressions import CelCompileError, CelEvaluationError, compile_expression

SELF = (("self", "dyn"),)
VALUE = {
    "n": 3,
    "text": "hello world",
    "list": [1, 2, 3],
    "names": ["b", "a"],
    "map": {"x": 1},
    "size": "1Gi",
    "nothing": None,
}


def run(expression: str, value: Any = None) -> Any:
    return compile_expression(expression, SELF).evaluate({"self": VALUE if value is None else value})


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("self.n > 2 && has(self.text) && !has(self.other)", True),
        ("self.list.all(x, x > 0) && self.list.exists(x, x == 2)", True),
        ("self.list.exists_one(x, x > 2)", True),
        ("self.list.map(x, x * 2).filter(x, x > 2)", [4, 6]),
        ("self.map.all(k, self.map[k] == 1)", True),
        ("self.?other.orValue('none')", "none"),
        ("self.?n.hasValue()", True),
        ("self.nothing == null", True),
        ("size(self.text) > 1.5", True),
        ("'é'.size()", 1),
        ("duration('90s').getMinutes()", 1),
        ("timestamp('2026-01-02T03:04:05Z').getDayOfMonth()", 1),
        ("self.text.matches('^hello\\\\s\\\\w+$')", True),
        # lists
        ("self.list.isSorted() && !self.names.isSorted()", True),
        ("self.list.sum()", 6),
        ("self.list.min() + self.list.max()", 4),
        ("self.names.indexOf('a')", 1),
        ("[1, 2, 1].lastIndexOf(1)", 2),
        ("self.list.indexOf(9)", -1),
        (
            "sets.contains(self.list, [1, 3]) && sets.equivalent([1, 1], [1]) && !sets.intersects([1], [2])",
            True,
        ),
        # strings
        ("self.text.split(' ').join('-')", "hello-world"),
        ("self.text.split('o', 2)", ["hell", " world"]),
        ("self.text.replace('o', '0', 1)", "hell0 world"),
        ("self.text.substring(6)", "world"),
        ("self.text.substring(0, 5).upperAscii()", "HELLO"),
        ("self.text.indexOf('o', 5)", 7),
        ("self.text.lastIndexOf('o')", 7),
        ("'  x '.trim().charAt(0)", "x"),
        ("'%s has %d of %.1f, %x'.format(['a', 3, 1.25, 255])", "a has 3 of 1.2, ff"),
        ("['a', 'b', 'c'].reverse()", ["c", "b", "a"]),
        # regular expressions
        ("'a1b22'.find('[0-9]+')", "1"),
        ("'a1b22'.findAll('[0-9]+')", ["1", "22"]),
        ("'a1b22'.findAll('[0-9]+', 1)", ["1"]),
        # quantities
        ("quantity(self.size).isGreaterThan(quantity('500Mi'))", True),
        ("quantity('1Gi') == quantity('1024Mi')", True),
        ("quantity('100m').compareTo(quantity('0.1'))", 0),
        ("quantity('1.5').isInteger()", False),
        ("quantity('1k').add(quantity('24')).asInteger()", 1024),
        ("quantity('50').sub(20).asInteger()", 30),
        ("isQuantity('1Gi') && !isQuantity('1Gx')", True),
        # versions
        (
            "semver('1.10.0').isGreaterThan(semver('1.9.9')) && semver('1.0.0-rc.1').isLessThan(semver('1.0.0'))",
            True,
        ),
        ("isSemver('v1.0', true) && !isSemver('v1.0')", True),
        ("semver('1.2.3').minor()", 2),
        # addresses
        ("ip('127.0.0.1').isLoopback() && ip('10.0.0.1').family() == 4", True),
        ("isIP('::1') && !isIP('1.2.3')", True),
        ("ip.isCanonical('::1') && !ip.isCanonical('0:0::1')", True),
        ("cidr('10.0.0.0/8').containsIP('10.1.2.3') && !cidr('10.0.0.0/8').containsIP(ip('11.0.0.1'))", True),
        ("cidr('10.0.0.0/8').containsCIDR('10.1.0.0/16')", True),
        ("cidr('10.1.2.3/8').masked() == cidr('10.0.0.0/8')", True),
        ("cidr('10.0.0.0/8').prefixLength()", 8),
        # URLs
        ("url('https://user@example.com:8443/a?b=c').getHostname()", "example.com"),
        ("url('https://example.com:8443/a').getPort()", "8443"),
        ("url('https://example.com/a?b=c').getQuery()", {"b": ["c"]}),
        ("isURL('/path') && !isURL('example.com')", True),
    ],
)
def test_an_expression_has_its_value(expression: str, expected: Any) -> None:
    assert run(expression) == expected


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("self.other == 1", "no such key: other"),
        ("self.list[9] == 1", "index out of bounds: 9"),
        ("self.n / 0 == 1", "division by zero"),
        ("9223372036854775807 + self.n > 0", "integer overflow"),
        ("self.n.startsWith('a')", "no such overload"),
        ("self.text.substring(99) == ''", "index out of range: 99"),
    ],
)
def test_a_failing_expression_raises_the_real_servers_message(expression: str, message: str) -> None:
    with pytest.raises(CelEvaluationError) as failed:
        run(expression)
    assert str(failed.value) == message


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("self.n >", "ERROR: <input>:1:9: Syntax error: mismatched input '<EOF>'"),
        ("nope(self.n)", "ERROR: <input>:1:5: undeclared reference to 'nope' (in container '')"),
        ("1 + 'a'", "ERROR: <input>:1:3: found no matching overload for '_+_' applied to '(int, string)'"),
    ],
)
def test_an_expression_that_does_not_compile_is_reported_with_its_position(
    expression: str, message: str
) -> None:
    with pytest.raises(CelCompileError) as refused:
        compile_expression(expression, SELF)
    assert str(refused.value).startswith(message)
    assert "^" in str(refused.value)
