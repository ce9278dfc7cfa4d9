"""Expressions: what they give for a query, their mistakes at their words, and what they depend on."""

import contextlib
import re
from pathlib import Path

import pytest
from dns_chain import read
from hypothesis import given
from hypothesis import strategies as st

from kdns.answers.chain import Request
from kdns.corefile.lexer import Token, tokens
from kdns.dns.message import query
from kdns.dns.types import AAAA
from kdns.errors import CorefileError
from kdns.serverblocks.expressions.functions import BUILTINS, GROUP, PREDICATES, QUERY_FUNCTIONS, Environment
from kdns.serverblocks.expressions.parser import BINDING, MAX_STEPS, Expression, expression
from kdns.serverblocks.expressions.values import EvaluationError, ValueKind
from kdns.values import evolve

FUNCTIONS = {**QUERY_FUNCTIONS, **GROUP}
REQUEST = Request(
    read(query("WWW.Example.org", AAAA, message_id=7, payload_bytes=1400)),
    ("fe80::1%eth0", 40000),
    "192.0.2.1",
    "udp",
    metadata={"a/b": "fact"},
    local_port=5353,
)
ENVIRONMENT = Environment(REQUEST, {"0": "www.", "1": "w", "n": "12"}, {"number": 5, "text": "abc"})
VARIABLES = {"number": ValueKind.NUMBER, "text": ValueKind.STRING}


def compiled(text: str) -> Expression:
    words = (Token("Corefile", 1, text, quoted=True),) if "#" in text else tuple(tokens(text, "Corefile"))
    return expression(words, FUNCTIONS, VARIABLES)


VALUES = [
    ("1 + 2 * 3 - 4", 3),
    ("(1 + 2) * 3", 9),
    ("7 / 2 + 8 / 4 / 2 - 1 - 1", 2.5),
    ("-7 % 3", -1),
    ("-2 * 2", -4),
    ("0x10 + 007 + 1.5", 24.5),
    ("1 < 2 and 2 <= 2 && 3 > 2 || false", True),
    ("not true or true", True),
    ("!(true and false)", True),
    ("1 == 1.0", True),
    ("true == false", False),
    ("nil == 'a'", False),
    ("'a' + 'b' == lower(\"AB\")", True),
    ("`a\\n` == 'a\\\\n'", True),
    ("'\\x41\\u0042\\103\\t'", "ABC\t"),
    ("type() in ['A', 'AAAA']", True),
    ("1 in [true]", False),
    ("5 in 1..9", True),
    ("number not in [1, 2]", True),
    ("name() matches '^www\\\\.'", True),
    ("name() not matches 'x{3}'", True),
    ("name() contains 'example' and name() startsWith 'www' and name() endsWith '.'", True),
    ("size() > 12 ? 'large' : 'small'", "large"),
    ("true ? false ? 1 : 2 : 3", 2),
    ("nil ?? text", "abc"),
    ("[1, 'a', number][2] + 1", 6),
    ("text[0] + text[-1]", "ac"),
    ("[1, 2, 3][-1]", 3),
    ("indexOf('abc', 'c') + indexOf('abc', 'd')", 1),
    ("split('ab', '')", ("a", "b")),
    ("(true ? 1 : 'a') == 1 and 'b' != ['a'][0]", True),
    ("len('abc') + len([1]) + len(1..3)", 7),
    ("int('12') + int(3.9)", 15),
    ("string(12) + string(1.0) + string(true) + string([1, 2])", "121true[1 2]"),
    ("upper('a') + lower('B') + trim(' c ') + trimPrefix('dd', 'd') + trimSuffix('ee', 'e')", "Abcde"),
    ("replace('aba', 'a', 'c')", "cbc"),
    ("join(split('a.b', '.'), '-') + join(['c', 'd'])", "a-bcd"),
    ("hasPrefix('ab', 'a') and hasSuffix('ab', 'b')", True),
    ("group('n') + group(1) + group(0) + group('none') + group(9)", "12wwww."),
    ("metadata('a/b') + metadata('a/c')", "fact"),
    ("incidr(client_ip(), 'fe80::/10')", True),
    ("incidr('[fe80::1]', 'fe80::/10')", True),
    ("incidr('10.1.2.3', '10.0.0.0/8') and not incidr('10.1.2.3', 'fe80::/10')", True),
    ("any(['10.0.0.0/8', 'fe80::/10'], incidr(client_ip(), #))", True),
    ("any(['10.0.0.0/8', 'fc00::/7'], {incidr(client_ip(), #)})", False),
    ("any([], # > 1) or all([], # > 1) and none([], # > 1) and not one([], # > 1)", True),
    ("all(split('a.b', '.'), len(#) == 1)", True),
    ("one([1, 2, 3], # > 2) and not one([1, 2, 3], # > 1) and none([1, 2], # > 2)", True),
    ("filter(0..9, {# % 2 == 0})", (0, 2, 4, 6, 8)),
    ("map(['a', 'b'], upper(#))", ("A", "B")),
    ("[find([1, 2, 3], # > 1), find([1], # > 1) ?? 'none', count(1..9, # > 3)]", (2, "none", 6)),
    ("any([[1, 2], [3]], any(#, # == 3)) and any(1..3, # == 2 and any(1..3, # == 3) and # == 2)", True),
    ("string(1..3) + string([])", "[1 2 3][]"),
    ("any(['^a', '^www'], name() matches #)", True),
    ("name() | trimSuffix('.') | split('.') | filter(# != 'org') | len()", 2),
    ("1..3 == [1, 2, 3] and [1, 2] != 1..3", True),
    ("9223372036854775807 % 10", 7),
    ("[bufsize(), class(), do(), id(), opcode(), port(), proto(), server_ip(), server_port(), type()]",
     (1400, "IN", False, 7, 0, "40000", "udp", "192.0.2.1", "5353", "AAAA")),
]  # fmt: skip


@pytest.mark.parametrize(("text", "value"), VALUES)
def test_values(text: str, value: object) -> None:
    got = compiled(text).value(ENVIRONMENT)
    assert (got, type(got)) == (value, type(value))


@pytest.mark.parametrize(
    ("transport", "payload_bytes", "value"),
    [("udp", 100, 512), ("udp", 0, 512), ("udp", 4096, 4096), ("tcp", 100, 65535)],
)
def test_bufsize_is_what_the_client_can_receive(transport: str, payload_bytes: int, value: int) -> None:
    request = evolve(REQUEST, query=read(query("a.", AAAA, payload_bytes=payload_bytes)), transport=transport)
    assert compiled("bufsize()").value(ENVIRONMENT._replace(request=request)) == value


MISTAKES = [
    ("invalid expression", "invalid", "unknown name `invalid`"),
    ("'a' == 'b' or 'a' == 'b' or x == 'b'", "x", "unknown name `x`"),
    ("nmae() == 'a'", "nmae()", "did you mean `name`"),
    ("name == 'a'", "name", "is a function"),
    ("name() ==", "==", "expected a value in the expression, got the end"),
    ('type() == "A"', "A", "unknown name `A`"),
    ('type() == "A"', "A", "strings of an expression stand in single quotes"),
    ("name() == 'a' 'b'", "'b'", "expected the end of the expression"),
    ("number + 'x'", "+", "does not take a number and a string"),
    ("number == 'x'", "==", "does not take a number and a string"),
    ("1 and true", "and", "expected a bool before `and`, got a number"),
    ("not 1", "not", "expected a bool after `not`"),
    ("name() matches type()", "matches", "a regular expression in quotes"),
    ("name() matches '('", "matches", "expected a regular expression in RE2 syntax"),
    ("incidr(client_ip(), '10.0.0.0')", "incidr(client_ip(),", "not a network"),
    ("incidr(client_ip())", "incidr(client_ip())", "takes 2 arguments and got 1"),
    ("len(1, 2)", "len(1,", "takes 1 arguments and got 2"),
    ("metadata(1)", "metadata(1)", "`metadata` does not take a number"),
    ("'a", "'a", "not closed"),
    ("'\\q'", "'\\q'", "is not an escape"),
    ("(1 + 2", "2", "expected `)`"),
    ("1 ? 2 : 3", "?", "expected a bool before `?`"),
    ("9223372036854775808", "9223372036854775808", "64 bits"),
    ("a & b", "&", "unexpected character `&`"),
    ("any([1], 1)", "any([1],", "expected a bool as the predicate of `any`, got a number"),
    ("any([1])", "any([1])", "takes a list and an expression"),
    ("any([1], ", "any([1],", "an expression with # stands in double quotes"),
    ("any == 1", "any", "is a function"),
    ("now() > 1", "now()", "unknown name `now` in the expression; there are all, any, bufsize, class, "),
    ("[1, 2][1:]", "2][1:]", "expected `]` in the expression, got `:`"),
    ("1 ** 2", "**", "expected a value in the expression, got `*`"),
    ("1 ^ 2", "^", "unexpected character `^`"),
    ("1 + 007 + 0x", "0x", "expected the end of the expression, got `x`"),
    ("[1] | 2", "2", "unknown name `2`"),
    ("name() == a.test", "a.test", "strings stand in single quotes"),
    ("{a: 1}", "{a:", "expected a value in the expression, got `{`"),
    ("[1][name()]", "[1][name()]", "`[]` does not take a list and a string"),
    ("1[0]", "1[0]", "`[]` does not take a number and a number"),
    ("(" * 50 + "1" + ")" * 50, "(" * 50 + "1" + ")" * 50, "more than 40 deep"),
]
# an expression with # is one word in double quotes
MISTAKES_IN_PREDICATES = [
    ("any(1, # > 1)", "expected a list as the first argument of `any`, got a number"),
    ("filter([1], {# > 1)", "expected `}`"),
    ("any(['a'], # > 1)", "does not take a string and a number"),
    ("any(['10.0.0.0/8', '10.0.0.0'], incidr(client_ip(), #))", "'10.0.0.0' is not a network"),
    ("any(['a', '('], name() matches #)", "expected a regular expression in RE2 syntax"),
    ("any(split(name(), '.'), name() matches #)", "a regular expression in quotes"),
    ("# > 1", "outside of a predicate"),
    ("any([true], #acc)", "expected `)` in the expression, got `acc`"),
    ("anny([1], # > 1)", "did you mean `any`"),
]


@pytest.mark.parametrize(
    ("text", "token", "reason"), [*MISTAKES, *((text, text, reason) for text, reason in MISTAKES_IN_PREDICATES)]
)
def test_mistakes_are_errors_at_their_words(text: str, token: str, reason: str) -> None:
    with pytest.raises(CorefileError) as caught:
        compiled(text)
    assert (caught.value.token, reason in caught.value.reason) == (token, True), caught.value


FAILURES = [
    "[1][0] == 'a'",
    "['a'][0] * 3",
    "[1, 2][0.5]",
    "1.5 % 2",
    "-[true][0]",
    "any([1][0], # > 1)",
    "any([['a'][0]], # > 1 and [1][0])",
    "any(1..9, any(1..9999, # < 0))",
    "any(1..20000, # < 0)",
    "map(1..5000, #)[0] == 1",
    "9 % [0][0]",
    "incidr('notanip', '10.0.0.0/8')",
    "incidr('10.0.0.1', metadata('a/b'))",
    "int('x')",
    "int('99999999999999999999')",
    "1 / 0",
    "1 % 0",
    "9223372036854775807 + 1",
    "[1][1]",
    "[1][0] + 'a'",
    "[1][0] and true",
    "len(1)",
    "1..2000000",
    "join([1])",
    "string(1..1000000)",
    "replace(string(1..5000), ' ', string(1..5000))",
]


@pytest.mark.parametrize("text", FAILURES)
def test_what_has_no_value_is_an_error_of_evaluation(text: str) -> None:
    with pytest.raises(EvaluationError):
        compiled(text).value(ENVIRONMENT)


@pytest.mark.parametrize(
    ("text", "is_of_packet"),
    [
        ("name() == 'a.' and type() in ['A'] and size() > 1 and do() and class() == 'IN' and opcode() == 0", True),
        *((f"name() == 'a.' or {function} == {function}", False) for function in ("id()", "client_ip()", "port()")),
        *((f"len(string({function})) > 1", False) for function in ("proto()", "server_ip()", "bufsize()")),
        ("[1, server_port()][0] == 1", False),
        ("true ? 1 : len(metadata('a/b'))", False),
        ("any(split(name(), '.'), # == 'a')", True),
        ("any(['a'], # == client_ip())", False),
        ("any([client_ip()], # == 'a')", False),
    ],
)
def test_what_an_expression_depends_on(text: str, is_of_packet: bool) -> None:
    assert compiled(text).is_of_packet is is_of_packet


PIECES = [
    *("name()", "type()", "'a'", "1", "2.5", "true", "nil", "number", "text", "[1,", "]", "(", ")", "+", "-", "*", "/"),
    *("any(", "map([1],", "#", "#acc", "|", "{", "}", ".", ","),
    *("in", "not", "and", "==", "<", "?", ":", "..", "matches", "len(", "int(", "'", "??", "[0]"),
]


@given(st.lists(st.sampled_from(PIECES), max_size=12))
def test_any_text_is_an_expression_or_a_mistake(pieces: list[str]) -> None:
    try:
        compiled_one = compiled(" ".join(pieces) or "1")
    except CorefileError:
        return
    with contextlib.suppress(EvaluationError):
        compiled_one.value(ENVIRONMENT)


def test_what_clients_send_makes_predicates_longer_up_to_a_limit() -> None:
    """The longest name, each octet of which is a label or an escape; a step takes about a microsecond."""
    name = ".".join(["\\000" * 15] * 15)
    text = "any(split(name(), ''), any(split(name(), ''), len(replace(name(), #, 'xx')) < 0))"
    request = evolve(REQUEST, query=read(query(name, AAAA)))
    with pytest.raises(EvaluationError, match=f"more than {MAX_STEPS} steps"):
        compiled(text).value(ENVIRONMENT._replace(request=request))
    networks = ", ".join(f"'10.{number}.0.0/16'" for number in range(256))
    assert compiled(f"any([{networks}], incidr('10.255.0.1', #))").value(ENVIRONMENT) is True


def test_what_functions_cost_in_a_predicate() -> None:
    """A string of 2048 characters takes 512 steps to make, and to look through."""
    text = "any(1..9, len(replace('{}', 'a', 'bb')) < 0)"
    assert compiled(text.format("a" * 64)).value(ENVIRONMENT) is False
    with pytest.raises(EvaluationError, match=f"more than {MAX_STEPS} steps"):
        compiled(text.format("a" * 1024)).value(ENVIRONMENT)


def test_the_documentation_lists_every_function_and_operator() -> None:
    page = (Path(__file__).parents[4] / "docs/directives/view.md").read_text()
    section = page.split("## Expressions", 1)[1].split("## ", 1)[0]
    facts = {name for row in section.split("\n") if row.startswith("| `") for name in re.findall(r"`(\w+)\(", row)}
    assert facts == QUERY_FUNCTIONS.keys()
    for begin, names in (("Functions: ", BUILTINS), ("Functions of a list", PREDICATES), ("Operators", BINDING)):
        (line,) = (line for line in section.split("\n") if line.startswith(begin))
        listed = {name.replace("\\", "") for name in re.findall(r"`([^` ]+)`", line)}
        assert listed - {"#", "not", "-", "&&", "||", "!", "."} == names.keys() - {"-"}, begin
