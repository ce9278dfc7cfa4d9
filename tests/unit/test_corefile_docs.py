"""Every Corefile in the documentation can be used, and every directive and option is documented."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kdns.corefile.address import DEFAULT_PORTS, HostPort
from kdns.corefile.parse import parse
from kdns.plugins import bind, errors, health, kubernetes, loadbalance, log, prometheus, ready
from kdns.plugins.registry import DIRECTIVES, configure

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [DOCS / "corefile.md", *sorted((DOCS / "directives").glob("*.md"))]
SNIPPET = re.compile(r"^```corefile\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SNIPPETS = [
    pytest.param(text, id=f"{page.stem}-{number}")
    for page in PAGES
    for number, text in enumerate(SNIPPET.findall(page.read_text(encoding="utf-8")))
]
OPTIONS = {
    "bind": {*bind.OPTIONS},
    "errors": {*errors.OPTIONS},
    "health": {*health.OPTIONS},
    "kubernetes": {*kubernetes.OPTIONS},
    "loadbalance": {*loadbalance.ROUND_ROBIN_OPTIONS, *loadbalance.WEIGHTED_OPTIONS},
    "log": {*log.OPTIONS},
    "prometheus": {*prometheus.OPTIONS},
    "ready": {*ready.OPTIONS},
}


@pytest.mark.parametrize("text", SNIPPETS)
def test_corefiles_in_the_documentation(text: str) -> None:
    assert configure(parse(text, environ={"HOSTNAME": "here"}))


@pytest.mark.parametrize("name", sorted(DIRECTIVES))
def test_every_directive_has_a_page_with_its_options_and_an_example(name: str) -> None:
    page = (DOCS / "directives" / f"{name}.md").read_text(encoding="utf-8")
    assert page.startswith(f"# {name}\n")
    assert any(name in text for text in SNIPPET.findall(page))
    assert [option for option in OPTIONS[name] if f"`{option}" not in page] == []


def test_there_are_no_other_directives_and_pages() -> None:
    assert {page.stem for page in (DOCS / "directives").glob("*.md")} == DIRECTIVES.keys() == OPTIONS.keys()
    listed = re.findall(r"\(directives/([a-z]+)\.md\) \|", (DOCS / "corefile.md").read_text(encoding="utf-8"))
    assert sorted(listed) == sorted(DIRECTIVES)


@pytest.mark.parametrize("scheme", sorted(DEFAULT_PORTS))
def test_every_scheme_is_documented_with_its_port(scheme: str) -> None:
    (row,) = re.findall(rf"^\|.*`{scheme}://`.*$", (DOCS / "corefile.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert str(DEFAULT_PORTS[scheme]) in row


def test_the_example_is_what_it_says() -> None:
    (server,) = configure(parse((ROOT / "Corefile.example").read_text(encoding="utf-8"), "Corefile.example"))
    assert [(address.zone, address.port) for address in server.addresses] == [(".", 1053)]
    assert server.bind == (bind.BindConfig(("127.0.0.1",)),)
    assert server.errors == errors.ErrorsConfig()
    assert server.health == health.HealthConfig(HostPort("localhost", 8080), 5.0)
    assert server.ready == ready.ReadyConfig(HostPort("localhost", 8181))
    assert server.prometheus == prometheus.PrometheusConfig(HostPort("localhost", 9153))
    assert server.loadbalance == loadbalance.LoadbalanceConfig()
    assert server.log == ()
    assert server.kubernetes == kubernetes.KubernetesConfig(
        zones=("cluster.local.", "in-addr.arpa.", "ip6.arpa."),
        endpoints=("http://127.0.0.1:8001",),
        pods="insecure",
        ttl_s=30,
    )
