"""Any text is a Corefile or a CorefileError; what is written in any style reads back as it was meant."""

import string
from collections.abc import Sequence
from ipaddress import IPv4Network, IPv6Network, ip_address
from typing import TypeAlias

from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from kdns.corefile.address import reverse_zones
from kdns.corefile.lexer import Token, tokens
from kdns.corefile.lines import Line
from kdns.corefile.parse import parse
from kdns.errors import CorefileError
from kdns.net import Network
from kdns.plugins.directives import BY_NAME, configure
from kdns.serverblocks.config import server_configs
from kdns.serverblocks.stanza import duration_s

UNHURRIED = settings(deadline=None)  # other work on the machine is no failure

FRAGMENTS = [
    *'{}",#\\.:/()* \n\t\r',
    *(
        "import",
        "import a",
        "(a)",
        "{$A}",
        "{%A%}",
        "://",
        "dns://",
        "tls://",
        "\ufeff",
        "\x00",
        "é",
        "0",
        "10.0.0.0/7",
    ),
    *("fd00::/3", "example.org", ":53", "{common}", '"{type}"', "5s", "consolidate 5m (x", "class", "prefer", "except"),
    *("pods verified", "ttl 5", "labels a in (b)", "endpoint http://a:b", "fallthrough", "reload 1h", "weighted f"),
    *BY_NAME,
]
FILES = {"a": "errors\nlog {\n class all\n}\n", "b": "import b", "c": "}", "d": "(a) {\nhealth\n}"}


def read(pattern: str) -> Sequence[tuple[str, str]]:
    return [(pattern, FILES[pattern])] if pattern in FILES else []


def refusal(text: str) -> CorefileError | None:
    """What is wrong with a Corefile, if anything."""
    try:
        configure(parse(text, environ={"A": "a {"}, read=read))
    except CorefileError as error:
        return error
    return None


def mistakes(text: str) -> list[CorefileError]:
    """Everything that `kdns check` says of a Corefile."""
    found: list[CorefileError] = []
    try:
        blocks = parse(text, environ={"A": "a {"}, read=read, mistakes=found)
        return server_configs(blocks, BY_NAME, mistakes=found)[2]
    except CorefileError as error:
        return [error]


PIECES = st.lists(st.sampled_from(FRAGMENTS))
TEXTS = PIECES.map("".join) | PIECES.map(" ".join) | st.text()


@UNHURRIED
@given(TEXTS | TEXTS.map(". {{\n{}\n}}".format) | TEXTS.map(". {{\nkubernetes {{\n{}\n}}\n}}".format))
@example(". {\nerrors {\nconsolidate 1s " + "(" * 2000 + "\n}\n}")
@example("{" * 5000)
@example("a {\n" * 5000)
@example("a {\n" * 5000 + "}\n" * 5000)
@example(", " * 5000)
def test_any_text_is_a_corefile_or_an_error_that_says_where(text: str) -> None:
    """The first of all mistakes is the one that ends a start."""
    errors = mistakes(text)
    assert str(refusal(text)) == str(errors[0] if errors else None)
    for error in errors:
        assert error.path
        assert error.reason
        assert 1 <= error.line <= 1 + max(text.count("\n"), 4)


@UNHURRIED
@given(st.dictionaries(st.sampled_from(sorted(BY_NAME)), st.lists(st.text(min_size=1), max_size=3)))
def test_any_arguments_are_understood_or_refused(stanzas: dict[str, list[str]]) -> None:
    assume(not any(each in arg for args in stanzas.values() for arg in args for each in ("\\", "{$A}", "\0")))
    body = "\n".join(" ".join((name, *map(quoted, args))) for name, args in stanzas.items())
    error = refusal(f". {{\n{body}\n}}")
    if error:
        assert error.token in {text for name, args in stanzas.items() for text in (name, *args)}


def quoted(text: str) -> str:
    return '"' + text.replace('"', '\\"') + '"'


Words: TypeAlias = tuple[str, ...]
Meant: TypeAlias = tuple[Words, tuple[Words, ...] | None]
"""A directive's words, and the options of its block, if it has one."""

PLAIN = st.text(string.ascii_letters + string.digits + "._-/=:", min_size=1).filter(lambda text: text != "import")
ANY = PLAIN | st.text(st.characters(codec="utf-8", exclude_characters="\\{\r\0"))
LINES = st.tuples(PLAIN, st.lists(ANY, max_size=3)).map(lambda parts: (parts[0], *parts[1]))
STANZAS = st.lists(st.tuples(LINES, st.none() | st.lists(LINES, max_size=3).map(tuple)), max_size=4)
BLANKS = st.sampled_from([" ", "\t", "   ", " \r"])
BREAKS = st.sampled_from(["\n", "\r\n", "\n\n", " # { comment }\n", '\n\t# "\n'])


def written(draw: st.DrawFn, words: Words) -> str:
    shown = [word if word and not set(word) - set(string.ascii_letters) else quoted(word) for word in words]
    return draw(BLANKS).join(shown)


@st.composite
def corefiles(draw: st.DrawFn) -> tuple[str, list[Meant]]:
    """One server block written in some style, and what was meant."""
    meant: list[Meant] = draw(STANZAS)
    text = ["example.org", draw(BLANKS | BREAKS), "{", draw(BREAKS)]
    for words, options in meant:
        text.append(written(draw, words))
        if options is not None:
            text += [draw(BLANKS), "{", draw(BREAKS)]
            for option in options:
                text += [written(draw, option), draw(BREAKS)]
            text.append("}")
        text.append(draw(BREAKS))
    return "".join([*text, "}"]), meant


def words_of(line: Line) -> Words:
    return tuple(word.text for word in line.words)


@UNHURRIED
@given(corefiles())
def test_every_style_reads_back_as_it_was_meant(case: tuple[str, list[Meant]]) -> None:
    text, meant = case
    (block,) = parse(text)
    found = [
        (words_of(stanza), tuple(map(words_of, stanza.block)) if stanza.braces else None) for stanza in block.stanzas
    ]
    assert found == meant


NO_QUOTING = str.maketrans("", "", '"\\')


@UNHURRIED
@given(PIECES.map("".join))
def test_tokens_stand_on_the_lines_that_they_name(text: str) -> None:
    try:
        tokens_of_text = list(tokens(text, "F"))
    except CorefileError:
        return
    lines = text.removeprefix("\ufeff").split("\n")
    for token in tokens_of_text:
        first = token.text.split("\n")[0]
        assert first.translate(NO_QUOTING) in lines[token.line - 1].translate(NO_QUOTING)


IPV4 = st.tuples(st.integers(0, 2**32 - 1), st.integers(0, 32)).map(lambda pair: IPv4Network(pair, strict=False))
IPV6 = st.tuples(st.integers(0, 2**128 - 1), st.integers(0, 128)).map(lambda pair: IPv6Network(pair, strict=False))


@UNHURRIED
@given(IPV4 | IPV6, st.data())
def test_reverse_zones_hold_exactly_the_addresses_of_their_network(network: Network, choose: st.DataObject) -> None:
    size = network.max_prefixlen
    number = choose.draw(
        st.integers(int(network.network_address), int(network.broadcast_address)) | st.integers(0, 2**size - 1)
    )
    address = ip_address(number.to_bytes(size // 8, "big"))
    name = f"{address.reverse_pointer}."
    holding = [zone for zone in reverse_zones(network) if name == zone or name.endswith(f".{zone}")]
    assert len(holding) == (address in network)


@UNHURRIED
@given(st.lists(st.tuples(st.integers(0, 10**6), st.sampled_from(["ns", "us", "µs", "ms", "s", "m", "h"])), min_size=1))
def test_durations_add_up(parts: list[tuple[int, str]]) -> None:
    seconds = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
    expected = sum(number * seconds[unit] for number, unit in parts)
    assume(expected < 9e9)
    found = duration_s(Token("F", 1, "".join(f"{number}{unit}" for number, unit in parts)))
    assert abs(found - expected) <= 1e-9 + expected * 1e-12
