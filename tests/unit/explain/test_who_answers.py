"""Which directive `kdns explain` names: the one whose answer it is, or that would ask an upstream, in any chain."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from kdns.cli.commands.explain import explain

MANIFESTS = """\
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: v1
kind: Service
metadata: {name: cart, namespace: shop}
spec: {clusterIP: 10.96.0.7, ports: [{port: 80, name: http}]}
---
apiVersion: v1
kind: Service
metadata: {name: outside, namespace: shop}
spec: {type: ExternalName, externalName: www.example.org}
---
apiVersion: v1
kind: Pod
metadata: {name: client, namespace: shop}
spec: {containers: [{name: c, image: x}]}
"""
ZONE = """\
$ORIGIN zone.test.
@ 60 IN SOA ns hostmaster 1 60 60 60 60
@ 60 IN NS ns
www 60 IN A 192.0.2.1
out 60 IN CNAME www.example.org.
"""
RESOLV_CONF = "search shop.svc.cluster.local svc.cluster.local cluster.local\n"
CLUSTER = "kubernetes cluster.local {\n pods verified\n}"
FORWARD = "forward . 192.0.2.53"
OWN_BLOCK = f"cluster.local {{\n{CLUSTER}\n}}\n"
CART = "cart.shop.svc.cluster.local."
WWW = "www.example.org."
ASKED = "192.0.2.53:53 would be asked"
NOBODY = "answered by no directive of the server block `.`"


def by(directive: str, block: str = ".") -> str:
    return f"answered by `{directive}` of the server block `{block}`"


PASSED_ON = "passed on by `forward` of the server block `.`"


@pytest.mark.parametrize(
    ("directives", "words", "lines"),
    [
        (f"autopath FOLDER/resolv.conf\n{CLUSTER}", "cart.shop", (f"{CART} A → 10.96.0.7", by("kubernetes"))),
        (f"autopath FOLDER/resolv.conf\n{CLUSTER}", f"none.{CART[5:]}", ("→ NXDOMAIN", by("kubernetes"))),
        (f"autopath FOLDER/resolv.conf\n{CLUSTER}", "cart.shop.shop.svc.cluster.local.", ("10.96.0.7", by("autopath"))),
        (f"autopath FOLDER/resolv.conf\n{CLUSTER}", WWW, ("→ SERVFAIL", NOBODY)),
        (
            f"autopath FOLDER/resolv.conf\n{CLUSTER}\n{FORWARD}",
            "redis.io.shop.svc.cluster.local.",
            (f"→ {ASKED} for redis.io.", PASSED_ON),
        ),
        (f"cache\nautopath @kubernetes\n{CLUSTER}", "--pod shop/client cart.shop", ("10.96.0.7", by("autopath"))),
        (f"cancel 1s\n{CLUSTER}\n{FORWARD}", "cart.shop", ("→ 10.96.0.7", by("kubernetes"))),
        (f"cancel 1s\ncache\n{CLUSTER}\n{FORWARD}", WWW, (f"→ {ASKED}\n", PASSED_ON)),
        (f"{CLUSTER}\nforward corp.test 192.0.2.53", WWW, ("→ SERVFAIL", "no directive has the answer", NOBODY)),
        (f"{CLUSTER}\nforward corp.test 192.0.2.53\nforward . 192.0.2.5", "a.corp.test.", (f"→ {ASKED}\n", PASSED_ON)),
        (f"{CLUSTER}\nforward corp.test 192.0.2.5\n{FORWARD}", WWW, (f"→ {ASKED}\n", PASSED_ON)),
        (f"{CLUSTER}\nforward . dns.example.org", WWW, ("→ an upstream would be asked", PASSED_ON)),
        (f"file FOLDER/zone zone.test\n{CLUSTER}", "www.zone.test.", ("→ 192.0.2.1", by("file"))),
        (f"file FOLDER/zone zone.test\n{CLUSTER}", "gone.zone.test.", ("→ NXDOMAIN", by("file"))),
        (f"file FOLDER/zone zone.test\n{CLUSTER}\n{FORWARD}", "out.zone.test.", (f"{ASKED} for {WWW}", PASSED_ON)),
        (f"auto zone.test {{\n directory FOLDER (none) zone.test\n}}\n{CLUSTER}\n{FORWARD}", WWW, (ASKED, PASSED_ON)),
        (f"secondary zone.test {{\n transfer from 192.0.2.3\n}}\n{CLUSTER}", "zone.test.", (by("secondary"),)),
        (f"hosts {{\n 192.0.2.7 host.test\n}}\n{CLUSTER}", "host.test.", ("→ 192.0.2.7", by("hosts"))),
        (f'template IN A t. {{\n answer "{{{{.Name}}}} 1 IN A 1.1.1.1"\n}}\n{CLUSTER}', "a.t.", (by("template"),)),
        (f"k8s_external ext.test\n{CLUSTER}", "none.shop.ext.test.", ("→ NXDOMAIN", by("k8s_external"))),
        (f"rewrite name far. www.example.org\n{CLUSTER}\n{FORWARD}", "far.", (f"{ASKED} for {WWW}", PASSED_ON)),
        (f"acl {{\n allow net 10.244.0.0/16\n block\n}}\n{CLUSTER}", "cart.shop", ("→ REFUSED", by("acl"))),
        (f"acl {{\n allow net 10.244.0.0/16\n block\n}}\n{CLUSTER}", "--pod shop/client cart", (by("kubernetes"),)),
        (f"dns64 {{\n allow_ipv4\n}}\n{CLUSTER}", "cart.shop AAAA", ("64:ff9b::a60:7", by("kubernetes"))),
        (f"dns64 {{\n allow_ipv4\n}}\n{CLUSTER}\n{FORWARD}", f"{WWW} AAAA", (ASKED, PASSED_ON)),
        (f"{CLUSTER}\n{FORWARD}", "outside.shop", (f"{ASKED} for {WWW}", PASSED_ON)),
        (f"{CLUSTER}", "outside.shop", (f"→ NODATA behind CNAME {WWW}", by("kubernetes"))),
    ],
)  # fmt: skip
def test_a_directive_is_named(tmp_path: Path, directives: str, words: str, lines: tuple[str, ...]) -> None:
    output = explained(tmp_path, f". {{\n{directives}\n}}\n", words)
    assert not [line for line in lines if line not in output], output


@pytest.mark.parametrize(
    ("corefile", "words", "lines"),
    [
        (OWN_BLOCK, WWW, ("→ REFUSED", "no server block has the name; their zones are cluster.local.")),
        (OWN_BLOCK, "cart.shp", ('there is no Namespace "shp"', by("kubernetes", "cluster.local."))),
        (f"{OWN_BLOCK}. {{\n{FORWARD}\n}}\n", "outside.shop", (f"{ASKED} for {WWW}", PASSED_ON)),
        (f"{OWN_BLOCK}. {{\n{FORWARD}\n}}\n", WWW, ("outside of the cluster's zones cluster.local.", PASSED_ON)),
        (f"{OWN_BLOCK}. {{\nwhoami\n}}\n", WWW, ("→ NODATA", by("whoami"))),
    ],
)
def test_so_is_its_block(tmp_path: Path, corefile: str, words: str, lines: tuple[str, ...]) -> None:
    output = explained(tmp_path, corefile, words)
    assert not [line for line in lines if line not in output], output


def explained(folder: Path, corefile: str, words: str) -> str:
    for name, text in (("objects.yaml", MANIFESTS), ("zone", ZONE), ("resolv.conf", RESOLV_CONF)):
        (folder / name).write_text(text)
    (folder / "Corefile").write_text(corefile.replace("FOLDER", str(folder)))
    sources = ["--manifests", str(folder / "objects.yaml"), "--corefile", str(folder / "Corefile")]
    result = CliRunner().invoke(explain, [*sources, *words.split()])
    assert result.exit_code in {0, 1}, result.output
    return result.output
