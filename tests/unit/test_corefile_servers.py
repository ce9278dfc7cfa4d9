"""Server blocks → servers: which directives there are, how often they may stand, and who listens where."""

from __future__ import annotations

from ipaddress import ip_network
from pathlib import Path

import pytest
import yaml

from kdns.corefile.address import HostPort
from kdns.corefile.parse import parse
from kdns.errors import CorefileError
from kdns.plugins.bind import BindConfig
from kdns.plugins.registry import ADDING_UP, DIRECTIVES, KNOWN_ELSEWHERE, LAST_ONE_COUNTS, configure

REFUSED: list[list[str]] = yaml.safe_load(
    (Path(__file__).parents[1] / "golden" / "corefile_directives.yaml").read_text(encoding="utf-8")
)["servers"]


@pytest.mark.parametrize(("text", "message"), REFUSED)
def test_refused(text: str, message: str) -> None:
    with pytest.raises(CorefileError) as caught:
        configure(parse(text, "F"))
    assert str(caught.value) == message


@pytest.mark.parametrize(
    "text",
    [
        "a {\n}\nb {\n}",
        "a {\n}\na:1053 {\n}",
        "a {\nbind 127.0.0.1\n}\na {\nbind ::1\n}",
        "a {\nbind lo eth0 {\nexcept eth0\n}\n}\na {\nbind eth0\n}",
        "a {\nbind ::1\nbind ::1\n}",
        "a:0 {\n}\na:0 {\n}",
        "errors {\n}",
    ],
)
def test_accepted(text: str) -> None:
    assert configure(parse(text))


def test_the_default_port_is_an_argument() -> None:
    assert configure(parse("a {\n}\na:1053 {\n}"))
    with pytest.raises(CorefileError, match="port 1053"):
        configure(parse("a {\n}\na:1053 {\n}"), dns_port=1053)


def test_the_schemes_that_can_be_served_are_an_argument() -> None:
    (server,) = configure(parse("tls://a dns://a {\n}"), schemes=("dns", "tls"))
    assert [address.scheme for address in server.addresses] == ["tls", "dns"]


@pytest.mark.parametrize("name", sorted(DIRECTIVES))
def test_repeated_directives(name: str) -> None:
    stanza = f"{name} ::1" if name == "bind" else name
    text = f". {{\n{stanza}\n{stanza}\n}}"
    if name in ADDING_UP:
        (server,) = configure(parse(text))
        assert len(getattr(server, name)) == 2
    elif name not in LAST_ONE_COUNTS:
        with pytest.raises(CorefileError, match="only once"):
            configure(parse(text))


def test_the_last_of_several_counts() -> None:
    (server,) = configure(parse(". {\nhealth :1\nloadbalance\nhealth :2\nloadbalance {\nprefer 10.0.0.0/8\n}\n}"))
    assert server.health
    assert server.loadbalance
    assert server.health.address == HostPort("", 2)
    assert server.loadbalance.prefer == (ip_network("10.0.0.0/8"),)


def test_a_server_without_directives_has_none() -> None:
    (server,) = configure(parse("A.org a.org:54 b.org", "F"))
    assert server.zones == ("a.org.", "b.org.")
    assert (server.path, server.line, server.bind, server.log) == ("F", 1, (), ())
    assert [getattr(server, name) for name in sorted(DIRECTIVES.keys() - ADDING_UP)] == [None] * 6


def test_stanzas_of_bind_add_up() -> None:
    (server,) = configure(parse(". {\nbind lo {\nexcept ::1\n}\nbind ::1\n}"))
    assert server.bind == (BindConfig(("lo",), ("::1",)), BindConfig(("::1",)))


def test_no_directive_is_known_twice() -> None:
    assert not KNOWN_ELSEWHERE & DIRECTIVES.keys()
    assert DIRECTIVES.keys() >= ADDING_UP | LAST_ONE_COUNTS
