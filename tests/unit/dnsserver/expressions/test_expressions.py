"""Expressions: what they give for a query, their mistakes at their words, and what they depend on."""

from __future__ import annotations

import contextlib

import pytest
from dns_chain import read
from hypothesis import given
from hypothesis import strategies as st

from kdns.corefile.lexer import tokens
from kdns.dns.message import query
from kdns.dns.types import AAAA
from kdns.dnsserver.chain import Request
from kdns.dnsserver.expressions.functions import GROUP, QUERY_FUNCTIONS, Environment
from kdns.dnsserver.expressions.parser import Expression, expression
from kdns.dnsserver.expressions.values import EvaluationError, ValueKind
from kdns.errors import CorefileError

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
VARIABLES = {"number": ValueKind.INT, "text": ValueKind.STRING}


def compiled(text: str) -> Expression:
    return expression(tuple(tokens(text, "Corefile")), FUNCTIONS, VARIABLES)


VALUES = [
    ("1 + 2 * 3 - 4", 3),
    ("(1 + 2) * 3", 9),
    ("2 ** 3 ** 2", 512.0),
    ("-2 ** 2", -4.0),
    ("7 / 2", 3.5),
    ("-7 % 3", -1),
    ("0x10 + 0b11 + 0o7 + 1_000", 1026),
    ("1.5 + .5", 2.0),
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
    ("text[1:] + text[:1] + text[0]", "bcaa"),
    ("[1, 2, 3][-1]", 3),
    ("len('abc') + len([1]) + len(1..3)", 7),
    ("int('12') + int(3.9)", 15),
    ("float('1.5') + float(1)", 2.5),
    ("string(12) + string(1.0) + string(true) + string([1, 2])", "121true[1 2]"),
    ("upper('a') + lower('B') + trim(' c ') + trimPrefix('dd', 'd') + trimSuffix('ee', 'e')", "Abcde"),
    ("replace('aba', 'a', 'c')", "cbc"),
    ("join(split('a.b', '.'), '-') + join(['c', 'd'])", "a-bcd"),
    ("max(1, 2) + min(3, 4) + abs(-1)", 6),
    ("indexOf('abc', 'c') + lastIndexOf('aba', 'a')", 4),
    ("hasPrefix('ab', 'a') and hasSuffix('ab', 'b')", True),
    ("group('n') + group(1) + group(0) + group('none') + group(9)", "12wwww."),
    ("metadata('a/b') + metadata('a/c')", "fact"),
    ("incidr(client_ip(), 'fe80::/10')", True),
    ("incidr('[fe80::1]', 'fe80::/10')", True),
    ("incidr('10.1.2.3', '10.0.0.0/8') and not incidr('10.1.2.3', 'fe80::/10')", True),
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
    request = REQUEST._replace(query=read(query("a.", AAAA, payload_bytes=payload_bytes)), transport=transport)
    assert compiled("bufsize()").value(ENVIRONMENT._replace(request=request)) == value


MISTAKES = [
    ("invalid expression", "invalid", "unknown name `invalid`"),
    ("nmae() == 'a'", "nmae()", "did you mean `name`"),
    ("name == 'a'", "name", "is a function"),
    ("name() ==", "==", "expected a value in the expression, got the end"),
    ('type() == "A"', "A", "unknown name `A`"),
    ('type() == "A"', "A", "strings of an expression stand in single quotes"),
    ("name() == 'a' 'b'", "'b'", "expected the end of the expression"),
    ("number + 'x'", "+", "does not take a int and a string"),
    ("number == 'x'", "==", "does not take a int and a string"),
    ("1 and true", "and", "expected a bool before `and`, got a int"),
    ("not 1", "not", "expected a bool after `not`"),
    ("name() matches type()", "matches", "a regular expression in quotes"),
    ("name() matches '('", "matches", "expected a regular expression in RE2 syntax"),
    ("incidr(client_ip(), '10.0.0.0')", "incidr(client_ip(),", "not a network"),
    ("incidr(client_ip())", "incidr(client_ip())", "takes 2 arguments and got 1"),
    ("len(1, 2)", "len(1,", "takes 1 arguments and got 2"),
    ("metadata(1)", "metadata(1)", "expected a string as an argument"),
    ("'a", "'a", "not closed"),
    ("'\\q'", "'\\q'", "is not an escape"),
    ("(1 + 2", "2", "expected `)`"),
    ("1 ? 2 : 3", "?", "expected a bool before `?`"),
    ("9223372036854775808", "9223372036854775808", "64 bits"),
    ("a & b", "&", "unexpected character `&`"),
    ("let x", "let", "got `let`"),
    ("1[0]", "1[0]", "has no elements"),
    ("(" * 50 + "1" + ")" * 50, "(" * 50 + "1" + ")" * 50, "more than 40 deep"),
]


@pytest.mark.parametrize(("text", "token", "reason"), MISTAKES)
def test_mistakes_are_errors_at_their_words(text: str, token: str, reason: str) -> None:
    with pytest.raises(CorefileError) as caught:
        compiled(text)
    assert (caught.value.token, reason in caught.value.reason) == (token, True), caught.value


FAILURES = [
    "incidr('notanip', '10.0.0.0/8')",
    "incidr('10.0.0.1', metadata('a/b'))",
    "int('x')",
    "int('99999999999999999999')",
    "1 / 0",
    "1 % 0",
    "9223372036854775807 + 1",
    "10.0 ** 400",
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
    ],
)
def test_what_an_expression_depends_on(text: str, is_of_packet: bool) -> None:
    assert compiled(text).is_of_packet is is_of_packet


PIECES = [
    *("name()", "type()", "'a'", "1", "2.5", "true", "nil", "number", "text", "[1,", "]", "(", ")", "+", "-", "*", "/"),
    *("in", "not", "and", "==", "<", "?", ":", "..", "matches", "len(", "int(", "'", "??", "**", "[0]"),
]


@given(st.lists(st.sampled_from(PIECES), max_size=12))
def test_any_text_is_an_expression_or_a_mistake(pieces: list[str]) -> None:
    try:
        compiled_one = compiled(" ".join(pieces) or "1")
    except CorefileError:
        return
    with contextlib.suppress(EvaluationError):
        compiled_one.value(ENVIRONMENT)
