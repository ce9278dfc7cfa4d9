"""What `kdns explain` says of clusters in which one thing is wrong, and which names it looks at."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kdns.apps import resolvers
from kdns.cli.commands.explain import explain
from kdns.cluster.objects import PodMeta
from kdns.cluster.observed import ObservedPod, PodSpec, ResolverConfig, ResolverOption
from kdns.cluster.readiness import Cause
from kdns.explain.explain import Explanation
from kdns.explain.search import cluster_resolver, pod_resolver

GOLDEN = Path(__file__).parents[2] / "golden"
BROKEN, MEANT_CLUSTER = GOLDEN / "explain_broken.yaml", GOLDEN / "explain_meant.yaml"
FORWARDING = """\
. {
    kubernetes cluster.local in-addr.arpa {
        pods insecure
        fallthrough in-addr.arpa
    }
    forward . 192.0.2.53
}
"""
COREFILE = """\
. {
    hosts {
        192.0.2.9 printer.example.org
        fallthrough
    }
    kubernetes cluster.local in-addr.arpa {
        pods verified
        namespaces default
        fallthrough in-addr.arpa
    }
    forward . 192.0.2.53
}
"""
SENTENCES = [
    ("sel", 0, 'nothing is behind it: selector app=webb matches 0 of 2 Pods in "default"; both have app=web'),
    ("sel", 0, "Try: kubectl set selector service -n default sel app=web"),
    ("sel AAAA", 1, "Service default/sel has no IPv6 cluster IP"),
    ("sel.default.svc.cluster.local. TXT", 1, "Service default/sel exists, and has no records of type TXT"),
    ("_htp._tcp.cart.shop SRV", 1, 'Service shop/cart has no port "htp" (meant "http"?); its ports: http/TCP 80'),
    ("_http._udp.cart.shop SRV", 1, 'port "http" of Service shop/cart is TCP, not UDP'),
    ("exth", 1, "it has no selector, and no EndpointSlice carries kubernetes.io/service-name=exth"),
    ("nr", 1, "it matches 1 Pod, which is not Ready (nr-0, 10.244.9.1)"),
    ("10-244-9-1.nr", 1, "endpoint nr-0, 10.244.9.1 of Service default/nr is not Ready"),
    ("10-244-9-2.nr", 1, 'Service default/nr has no endpoint "10-244-9-2"; there is "10-244-9-1"'),
    ("10-244-9-1.nr.default.svc.cluster.local", 1, "endpoint nr-0, 10.244.9.1 of Service default/nr is not Ready"),
    ("a", 1, "a → b → a: a loop of 2 ExternalName Services"),
    ("lost", 1, 'there is no Service "none" in "shop"'),
    ("ip", 0, "externalName 10.1.2.3 is an address"),
    ("sel.default.svc.cluster.local.default.svc.cluster.local", 1, "a search list made this name of"),
    ("10-1-2-3.default.pod.cluster.local", 0, "`pods insecure` answers with the address in the name"),
    ("--pod default/web-1 sel", 0, "its dnsPolicy is Default: it asks its node's servers"),
]


SHOP, DEFAULT = "shop.svc.cluster.local.", "default.svc.cluster.local."
NO_SHP = 'there is no Namespace "shp"; there is "shop"'
CART = "cart.shop.svc.cluster.local"
MEANT = [
    ("my-service.defalt", "my-service.defalt.svc.cluster.local.", 'no Namespace "defalt"; there is "default"'),
    ("my-service.defalt", "my-service.defalt.svc.cluster.local.", 'default has Service "my-service"'),
    ("my-servce.defalt", "my-servce.defalt.svc.cluster.local.", '"my-servce" in "default"; there is "my-service"'),
    ("my-servce", f"my-servce.{DEFAULT}", 'there is "my-service"'),
    ("cart", f"cart.{DEFAULT}", f"shop has one: {CART}"),
    ("crt", f"crt.{DEFAULT}", f'shop has Service "cart": {CART}'),
    ("cart.default", f"cart.{DEFAULT}", f"shop has one: {CART}"),
    ("cart.shp", "cart.shp.svc.cluster.local.", NO_SHP),
    ("crt.shop", f"crt.{SHOP}", 'there is "cart"'),
    ("crt.shp", "crt.shp.svc.cluster.local.", NO_SHP),
    ("cart.prod", "cart.prod.", f'shop has Service "cart": {CART}'),
    ("www.example.org", "www.example.org.", "outside of the cluster's zones"),
    ("cart.shop.scv", "cart.shop.scv.cluster.local.", f"nor `pod`: the name of Service shop/cart is {CART}"),
    ("cart.shp.svc", "cart.shp.svc.cluster.local.", NO_SHP),
    ("crt.shop.svc", f"crt.{SHOP}", 'there is "cart"'),
    ("cart.nowhere.svc", "cart.nowhere.svc.cluster.local.", 'there is no Namespace "nowhere"'),
    ("cart.shp.cluster.local", "cart.shp.cluster.local.", f"`svc` is missing: the name of Service shop/cart is {CART}"),
    ("cart.shop.svc.cluster.locl", "cart.shop.svc.cluster.locl.", f"cluster.local, not cluster.locl: {CART}"),
    ("cart.shop.svc.cluster", "cart.shop.svc.cluster.", f"cluster.local, not cluster: {CART}"),
    ("cart.shop.svc.k8s.example", "cart.shop.svc.k8s.example.", f"cluster.local, not k8s.example: {CART}"),
    ("cart.shop.cluster.locl.", "cart.shop.cluster.locl.", f"cluster.local, not cluster.locl: {CART}"),
    ("cart.shop.", "cart.shop.", f"cart.shop means {CART}"),
    ("crt.shop.", "crt.shop.", f"crt.shop means {CART}"),
    ("cart.shop.svc.", "cart.shop.svc.", f"cluster.local, which is missing: {CART}"),
    ("_htp._tcp.cart.shop SRV", f"_htp._tcp.cart.{SHOP}", '(meant "http"?)'),
    ("_http._tpc.cart.shop SRV", f"_http._tpc.cart.{SHOP}", "is TCP, not TPC"),
    ("_http._tcp.cart.shp SRV", "_http._tcp.cart.shp.svc.cluster.local.", NO_SHP),
    ("_http._tcp.crt.shop SRV", f"_http._tcp.crt.{SHOP}", 'there is "cart"'),
    ("http.tcp.cart.shop SRV", f"http.tcp.cart.{SHOP}", f"begin with `_`: _http._tcp.{CART}"),
    ("_http.cart.shop SRV", f"_http.cart.{SHOP}", "as in _PORT._tcp"),
    ("db-0", f"db-0.{DEFAULT}", 'shop has Service "db"'),
    ("db-0.shop", f"db-0.{SHOP}", "it is a Pod, whose name is db-0.db.shop.svc.cluster.local"),
    ("db-7.db.shop", f"db-7.db.{SHOP}", 'Service shop/db has no endpoint "db-7"'),
    ("db-0.dbb.shop", f"db-0.dbb.{SHOP}", 'no Service "dbb" in "shop"; there is "db"'),
    ("db-0.db.shp", "db-0.db.shp.svc.cluster.local.", NO_SHP),
    ("-n shop db-7.db", f"db-7.db.{SHOP}", 'Service shop/db has no endpoint "db-7"'),
    ("alone", f"alone.{DEFAULT}", "it is a Pod, and no headless Service gives it a name"),
    ("shop", f"shop.{DEFAULT}", '"shop" is a Namespace; the names of its Services are NAME.shop'),
    ("10-1-2-3.defalt.pod", "10-1-2-3.defalt.pod.cluster.local.", 'there is "default"'),
    ("10-1-2-3.default.pdo", "10-1-2-3.default.pdo.cluster.local.", "the name is 10-1-2-3.default.pod.cluster.local"),
    ("outside", f"outside.{DEFAULT}", "would be asked for www.example.org."),
    ("short", f"short.{DEFAULT}", f"taken as a full name; that of Service shop/cart is {CART}"),
    ("misspelt", f"misspelt.{DEFAULT}", f"cluster.local, not cluster.locl: {CART}"),
    ("-n shp cart", "cart.shp.svc.cluster.local.", NO_SHP),
    ("198.51.100.7.", "7.100.51.198.in-addr.arpa.", "no Service, endpoint or Pod has address 198.51.100.7"),
    ("--pod default/alone cart.shop", f"cart.{SHOP}", "Service shop/cart has cluster IP"),
    ("--pod default/alone cart.shp", "cart.shp.svc.cluster.local.", NO_SHP),
    ("Cart.SHOP", f"cart.{SHOP}", "Service shop/cart has cluster IP"),
]


def run(manifests: Path, words: str) -> Result:
    return CliRunner().invoke(explain, ["--manifests", str(manifests), *words.split()])


@pytest.mark.parametrize(("words", "code", "sentence"), SENTENCES)
def test_what_is_wrong_is_named(words: str, code: int, sentence: str) -> None:
    result = run(BROKEN, words)
    assert sentence in result.output
    assert result.exit_code == code, result.output


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        ("printer.example.org.", 0, "the directive `hosts` answered"),
        ("www.example.org.", 0, "192.0.2.53:53 would be asked"),
        ("cart.shop", 1, 'hides Namespace "shop": the option `namespaces default` does not name it'),
        ("10-1-2-3.default.pod.cluster.local", 1, "no running Pod has address 10.1.2.3"),
    ],
)
def test_a_corefile_decides(tmp_path: Path, words: str, code: int, sentence: str) -> None:
    corefile = tmp_path / "Corefile"
    corefile.write_text(COREFILE)
    result = run(BROKEN, f"--corefile {corefile} {words}")
    assert sentence in result.output
    assert result.exit_code == code, result.output


@pytest.mark.parametrize(("words", "name", "sentence"), MEANT)
def test_the_name_that_was_meant_is_explained(tmp_path: Path, words: str, name: str, sentence: str) -> None:
    """Of all names that a resolver tries, whatever their order."""
    corefile = tmp_path / "Corefile"
    corefile.write_text(FORWARDING)
    output = run(MEANT_CLUSTER, f"--corefile {corefile} {words}").output
    headline = next(line for line in output.splitlines() if " → " in line)
    assert headline.startswith(f"{name} "), output
    assert sentence in output


def test_json_has_the_same() -> None:
    explanation = json.loads(run(BROKEN, "-o json cart.default").output)
    assert (explanation["name"], explanation["verdict"], explanation["directive"]) == (
        "cart.default.svc.cluster.local.",
        "NXDOMAIN",
        "kubernetes",
    )
    assert [name["name"] for name in explanation["tried"]][:2] == [
        "cart.default.default.svc.cluster.local.",
        "cart.default.svc.cluster.local.",
    ]


@pytest.mark.parametrize(
    ("resolv_conf", "upstream"),
    [
        ("nameserver 192.0.2.53\noptions ndots:5 edns0\n", "192.0.2.53:53"),
        ("nameserver 2001:db8::53\n", "[2001:db8::53]:53"),
        ("nameserver fe80::1%lo\n", "[fe80::1%lo]:53"),
        ("search example.org\n", "an upstream"),
        ("nameserver nonsense\n", "an upstream"),
        ("", "an upstream"),
        (None, "an upstream"),
        (b"nameserver \xff\n", "an upstream"),
    ],
)
def test_it_needs_no_resolver_of_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, resolv_conf: str | bytes | None, upstream: str
) -> None:
    """None is a link that leads nowhere."""
    path = tmp_path / "resolv.conf"
    if resolv_conf is None:
        path.symlink_to(tmp_path / "nowhere")
    else:
        path.write_bytes(resolv_conf if isinstance(resolv_conf, bytes) else resolv_conf.encode())
    monkeypatch.setattr(resolvers, "RESOLV_CONF", path)
    result = run(BROKEN, "www.example.org")
    assert f"→ {upstream} would be asked" in result.output
    assert result.exit_code == 0


@pytest.mark.parametrize("words", ["cart NOTYPE", "--pod default/nobody cart", "a..b", "--corefile missing cart"])
def test_wrong_input_is_an_error(words: str) -> None:
    result = run(BROKEN, words)
    assert result.exit_code == 2, result.output
    assert "Error" in result.output


def test_resolvers_of_pods() -> None:
    pod = ObservedPod(
        PodMeta("web", "shop"), spec=PodSpec("None", ResolverConfig(("x.org",), (ResolverOption("ndots", "2"),)))
    )
    assert pod_resolver(pod, "cluster.local.").names("a.b") == ("a.b.x.org.", "a.b.")
    assert pod_resolver(pod, "cluster.local.").names("a.b.c") == ("a.b.c.", "a.b.c.x.org.")
    assert cluster_resolver("shop", "cluster.local").names("web") == (
        "web.shop.svc.cluster.local.",
        "web.svc.cluster.local.",
        "web.cluster.local.",
        "web.",
    )
    assert not pod_resolver(ObservedPod(PodMeta("web", "shop"), spec=PodSpec(host_network=True)), "c.").is_of_cluster


def test_the_command_is_that_of_the_last_cause_that_has_one() -> None:
    causes = Cause("a", command="kubectl get a"), Cause("b", command="kubectl get b"), Cause("c")
    assert Explanation("web.", "A", "NXDOMAIN", causes=causes).command == "kubectl get b"
