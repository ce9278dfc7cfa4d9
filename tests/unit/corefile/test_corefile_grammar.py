"""tests/golden/corefile.yaml: what each text means, and what is said about wrong ones."""

from collections.abc import Sequence
from fnmatch import fnmatchcase
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest
from yaml_file import yaml_file

from kdns.corefile.address import is_reverse, reverse_zones
from kdns.corefile.imports import MAX_NESTING, Reader
from kdns.corefile.lexer import tokens
from kdns.corefile.lines import Line
from kdns.corefile.parse import ServerBlock, parse
from kdns.errors import CorefileError

GOLDEN: dict[str, list[Any]] = yaml_file(Path(__file__).parents[2] / "golden" / "corefile.yaml")


def reader(files: dict[str, str]) -> Reader:
    def read(pattern: str) -> Sequence[tuple[str, str]]:
        return [(path, text) for path, text in sorted(files.items()) if fnmatchcase(path, pattern)]

    return read


def parsed(case: dict[str, Any], mistakes: list[CorefileError] | None = None) -> tuple[ServerBlock, ...]:
    return parse(
        case["text"],
        case.get("path", "Corefile"),
        environ=case.get("environ", {}),
        read=reader(case.get("files", {})),
        mistakes=mistakes,
    )


def shown_word(text: str) -> str:
    if not text or text in {"{", "}"} or set(text) & set(' "#\n'):
        return '"' + text.replace('"', '\\"').replace("\n", "⏎") + '"'
    return text


def shown_line(line: Line) -> str:
    words = " ".join(shown_word(word.text) for word in line.words)
    options = "".join(f"{shown_line(option)}; " for option in line.block)
    return f"{words} {{ {options}}}" if line.braces else words


def shown_block(block: ServerBlock) -> str:
    zones = (f"{a.scheme}://{a.zone}" + (f":{a.port}" if a.port is not None else "") for a in block.addresses)
    return " | ".join((" ".join(zones), *map(shown_line, block.stanzas))) + ("" if block.stanzas else " |")


@pytest.mark.parametrize("case", GOLDEN["shapes"], ids=lambda case: case["name"])
def test_shapes(case: dict[str, Any]) -> None:
    assert [shown_block(block) for block in parsed(case)] == case["blocks"]


def mistakes(case: dict[str, Any]) -> list[str]:
    """What is said about a text: about its grammar and imports, and about words of its blocks."""
    found: list[CorefileError] = []
    try:
        blocks = parsed(case, found)
    except CorefileError as error:
        return [str(error)]
    return [*map(str, found), *(str(mistake) for block in blocks for mistake in block.mistakes)]


@pytest.mark.parametrize("case", GOLDEN["errors"], ids=lambda case: repr(case["text"]))
def test_errors(case: dict[str, Any]) -> None:
    assert mistakes(case) == ([case["message"]] if "message" in case else case["messages"])


@pytest.mark.parametrize(("network", "number"), GOLDEN["networks"])
def test_reverse_zones_cover_the_network_and_nothing_else(network: str, number: int) -> None:
    net = ip_network(network)
    zones = reverse_zones(net)
    assert len(set(zones)) == len(zones) == number
    assert all(is_reverse(zone) for zone in zones)
    for address, covered in [(net[0], True), (net[-1], True), (net[0] - 1, False), (net[-1] + 1, False)]:
        name = f"{address.reverse_pointer}."
        assert any(name == zone or name.endswith(f".{zone}") for zone in zones) == covered


def test_default_ports() -> None:
    (block,) = parse("dns://a tls://a https://a https3://a quic://a grpc://a dns://a:7")
    assert [address.port_or_default(53) for address in block.addresses] == [53, 853, 443, 443, 853, 443, 7]
    assert [address.port_or_default(1053) for address in block.addresses] == [1053, 853, 443, 443, 853, 443, 7]


def test_lines_are_counted_through_quotes_and_files() -> None:
    text = 'a "b\nc" d\n\n# e\nf'
    assert [(token.text, token.line, token.starts_line) for token in tokens(text, "x")] == [
        ("a", 1, True),
        ("b\nc", 1, False),
        ("d", 2, False),
        ("f", 5, True),
    ]
    (block,) = parse(". {\nimport one\nlog\n}\n", read=reader({"one": "\n\nerrors"}))
    assert [(stanza.path, stanza.line, stanza.name) for stanza in block.stanzas] == [
        ("one", 3, "errors"),
        ("Corefile", 3, "log"),
    ]


def test_imports_are_bounded_in_number_and_depth() -> None:
    doubling = "".join(f"(s{n}) {{\nimport s{n - 1}\nimport s{n - 1}\n}}\n" for n in range(1, 20))
    with pytest.raises(CorefileError, match="more than 10000 imports"):
        parse(f"(s0) {{\n}}\n{doubling}. {{\nimport s19\n}}\n")
    chain = "".join(f"(s{n}) {{\nimport s{n - 1}\n}}\n" for n in range(1, MAX_NESTING + 1))
    with pytest.raises(CorefileError, match=f"more than {MAX_NESTING} deep"):
        parse(f"(s0) {{\n}}\n{chain}. {{\nimport s{MAX_NESTING}\n}}\n")


@pytest.mark.parametrize(
    "error", [PermissionError(13, "Permission denied"), UnicodeDecodeError("utf-8", b"", 0, 1, "bad")]
)
def test_a_file_that_cannot_be_read_is_reported_where_it_is_imported(error: Exception) -> None:
    def read(_pattern: str) -> Sequence[tuple[str, str]]:
        raise error

    with pytest.raises(CorefileError, match=r"^Corefile:2: cannot read dir/x: .* \(at 'dir/x'\)$"):
        parse(". {\nimport dir/x\n}\n", read=read)


def test_a_message_has_the_beginning_of_a_word_without_end() -> None:
    with pytest.raises(CorefileError, match=r"^Corefile:1: expected a blank before the `\{`") as caught:
        parse("{" * 1_000_000, "Corefile")
    assert (len(str(caught.value)) < 1000, len(caught.value.token)) == (True, 1_000_000)
