"""Every Corefile in the documentation can be used, and every directive and option is documented."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from dns_chain import only

from kdns.cluster.source import Source
from kdns.corefile.address import DEFAULT_PORTS
from kdns.corefile.parse import parse
from kdns.net import HostPort
from kdns.plugins.directives import BY_NAME, configure
from kdns.plugins.settings import SETTINGS
from kdns.plugins.sources.kubernetes import plugin as kubernetes
from kdns.serverblocks.block_options import BindConfig, HealthPage, MetricsPage, ReadyPage
from kdns.serverblocks.directive import Repeat, Row

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
PAGES = [DOCS / "corefile.md", *sorted((DOCS / "directives").glob("*.md"))]
SNIPPET = re.compile(r"^```corefile\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SNIPPETS = [
    pytest.param(text, id=f"{page.stem}-{number}")
    for page in PAGES
    for number, text in enumerate(SNIPPET.findall(page.read_text(encoding="utf-8")))
]
REPEATED = {
    Repeat.ERROR: "The directive may occur once in a server block.",
    Repeat.LAST: "If the directive occurs twice in a block, the last one is used.",
    Repeat.ADD: "The directive may occur several times in a server block",
}
"""How a page says what several stanzas mean."""


@pytest.mark.parametrize("text", SNIPPETS)
def test_corefiles_in_the_documentation(text: str) -> None:
    assert configure(parse(text, environ={"HOSTNAME": "here"}))


@pytest.mark.parametrize("name", sorted(BY_NAME))
def test_every_directive_has_a_page_with_its_options_and_an_example(name: str) -> None:
    page = (DOCS / "directives" / f"{name}.md").read_text(encoding="utf-8")
    assert page.startswith(f"# {name}\n\n`{name}` ")
    assert any(name in text for text in SNIPPET.findall(page))
    assert [option for option in BY_NAME[name].options if f"`{option}" not in page] == []
    assert REPEATED[BY_NAME[name].repeat] in page


def test_there_are_no_other_directives_and_pages() -> None:
    assert {page.stem for page in (DOCS / "directives").glob("*.md")} == BY_NAME.keys()


@pytest.mark.parametrize("scheme", sorted(DEFAULT_PORTS))
def test_every_scheme_is_documented_with_its_port(scheme: str) -> None:
    (row,) = re.findall(rf"^\|.*`{scheme}://`.*$", (DOCS / "corefile.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert str(DEFAULT_PORTS[scheme]) in row


def test_the_example_is_what_a_cluster_runs_but_for_what_it_says() -> None:
    """The ConfigMap in deploy/ has kubeadm's Corefile."""
    (server,) = configure(parse((ROOT / "Corefile.example").read_text(encoding="utf-8"), "Corefile.example"))
    manifest = yaml.safe_load((ROOT / "deploy" / "configmap.yaml").read_text(encoding="utf-8"))
    (of_cluster,) = configure(parse(manifest["data"]["Corefile"]))
    assert [(address.zone, address.port) for address in server.addresses] == [(".", 1054)]
    own: dict[Row, object] = {
        SETTINGS["bind"]: BindConfig(("127.0.0.1",)),
        SETTINGS["health"]: HealthPage(HostPort("localhost", 8080), 5.0),
        SETTINGS["ready"]: ReadyPage(HostPort("localhost", 8181)),
        SETTINGS["prometheus"]: MetricsPage(HostPort("localhost", 9153)),
        kubernetes.DIRECTIVE: replace(
            only(of_cluster, kubernetes.DIRECTIVE), source=Source(endpoint="http://127.0.0.1:8001"), snapshot=None
        ),
    }
    assert server.directives == {**of_cluster.directives, **{row.name: (config,) for row, config in own.items()}}
