"""`kdns check` and `kdns serve --validate`: every mistake of every kind of file at its line, and which kind it is."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from kdns.apps.check import WANTED, content_kind
from kdns.cli.main import main

SETTINGS = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n"
SERVICE = "apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec:\n  ports: [{port: 80}]\n"
SOA = "@ 60 IN SOA ns.a.org. h.a.org. 1 2 3 4 5\n"


def run(*words: str, stdin: str | None = None) -> tuple[int, list[str]]:
    result = CliRunner().invoke(main, list(words), input=stdin)
    return result.exit_code, result.stdout.splitlines()


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (".:53 {\n    errors\n}\n", "corefile"),
        ("# ours\n.\nwhoami\n", "corefile"),
        ("(snippet) {\n}\n", "corefile"),
        ("{$ZONE}:53 {\n}\n", "corefile"),
        ("import other\n", "corefile"),
        (". {\nroute53\n", "corefile"),
        (SERVICE, "yaml"),
        ("# x\n---\n" + SETTINGS, "yaml"),
        ("- apiVersion: v1\n", "yaml"),
        ('{"kind": "List", "items": []}', "yaml"),
        ('{\n  "metadata": {}}', "yaml"),
        ("kind: ConfigMap\ndata:\n  Corefile: |\n    . {\n    }\n", "yaml"),
        ("", ""),
        ("a: 1\nb: [2]\n", ""),
        ("[Unit]\nDescription=x\n", ""),
    ],
)
def test_a_file_is_known_by_its_content(text: str, kind: str) -> None:
    assert content_kind(text) == kind


MANY = f"""\
kind: List
apiVersion: v1
items:
- {{kind: Pod, apiVersion: v2}}
---
{SERVICE}  typ: x
---
a: [
---
{SERVICE.replace("80", "http")}---
kind: Service
"""
FIELDS = """\
apiVersion: v1
kind: Service
metadata:
  name: web
  labels:
    on.example/x: true
spec:
  clusterIP: 10.1.1.1
  ports:
  - port: 80
    targetPort: a b
"""
OLD_SETTINGS = (
    SETTINGS
    + """\
resourceContainer: /kube-proxy
conntrack:
  max: null
Mode: ipvs
clusterCIDR: 10.0.0.0/16
clusterCIDR: 10.0.0.0/8
---
apiVersion: v1
kind: Namespace
metadata: {name: a}
"""
)
"""kube-proxy takes it: fields of earlier releases, in another case and twice, and another document behind."""
IN_STYLE = """\
apiVersion: v1
kind: ConfigMap
metadata: {{name: coredns, namespace: kube-system}}
data:
  Corefile: {}
    . {{
      redy
    }}
"""
MAPS = """\
apiVersion: v1
kind: ConfigMap
metadata: {name: coredns, namespace: kube-system}
data:
  Corefile: |  # ours
    .:53 {
        import /etc/coredns/custom
        forward . __PILLAR__CLUSTER__DNS__
        file none
        redy
    }
---
apiVersion: v1
kind: ConfigMap
metadata: {name: kube-proxy}
data:
  config.conf: |-
    apiVersion: kubeproxy.config.k8s.io/v1alpha1
    kind: KubeProxyConfiguration
    mode: x
  kubeconfig.conf: "kind: Config"
"""
JSON_MAP = """\
{"apiVersion": "v1", "kind": "ConfigMap",
"metadata": {"name": "a"},
"data": {"Corefile": ". {\\n x\\n}\\n"}}
"""

TABLE: list[tuple[str, str, list[str]]] = [
    ("Corefile", ". {\nready\n}\n", []),
    (
        "Corefile",
        ". {\nreload 1s\nroute53 x\n}\n",
        [
            "Corefile:2: reload: expected an interval of at least 2s, got '1s'",
            "Corefile:3: kdns does not have the directive `route53` of CoreDNS",
        ],
    ),
    (
        "Corefile",
        ". {\nready\nready {\n}\nready a b\n}\n",
        [
            "Corefile:3: `ready` may occur only once",
            "Corefile:5: `ready` may occur only once",
            "Corefile:5: ready: one argument too many; expected `ready [ADDRESS]`",
        ],
    ),
    (
        "Corefile",
        '. {\ntemplate IN A {\nanswer "{{ .Nmae }} A 192.0.2.1"\n}\n}\n',
        ["Corefile:3: template: unknown field `.Nmae`; did you mean `.Name`? (at '{{ .Nmae }} A 192.0.2.1')"],
    ),
    ("Corefile", ". {\n", ["Corefile:1: the block of `.` is not closed"]),
    (
        "c.conf",
        SETTINGS + "mode: x\niptables:\n  bit: 1\noomScoreAdj: 5000\n",
        [
            'c.conf:3: mode: Invalid value: "x"',
            "c.conf:6: oomScoreAdj: Invalid value: 5000",
        ],
    ),
    (
        "a.yaml",
        SERVICE + "---\n" + SETTINGS,
        ["a.yaml:7: KubeProxyConfiguration is not the first document; `kdns proxy --config` reads no other"],
    ),
    ("a.yaml", SERVICE, []),
    ("a.yaml", "# nothing\n", []),
    (
        "a.yaml",
        MANY,
        [
            "a.yaml:4: kind: skipped: v2 Pod is not served, Pod is served as v1",
            "a.yaml:11: spec.typ: unknown field",
            "a.yaml:13: not YAML",
            "a.yaml:15: Service web is already defined at a.yaml:6; that definition is used",
            "a.yaml:21: apiVersion: expected a string, got nothing",
        ],
    ),
    (
        "a.yaml",
        FIELDS,
        [
            "a.yaml:6: metadata.labels.on.example/x: expected a string, got true; put it in quotes",
            'a.yaml:8: spec.clusterIPs: Invalid value: ["10.1.1.1"]: failed to allocate IP 10.1.1.1',
            'a.yaml:11: spec.ports[0].targetPort: Invalid value: "a b"',
        ],
    ),
    (
        "cm.yaml",
        MAPS,
        [
            "cm.yaml:10: data.Corefile: unknown directive `redy`; did you mean `ready`? (at 'redy')",
            'cm.yaml:20: data.config.conf: mode: Invalid value: "x"',
        ],
    ),
    ("cm.yaml", IN_STYLE.format("|-  # a block"), ["cm.yaml:7: data.Corefile: unknown directive `redy`"]),
    ("cm.yaml", IN_STYLE.format("!!str &corefile |2+"), ["cm.yaml:7: data.Corefile: unknown directive `redy`"]),
    ("cm.yaml", IN_STYLE.format(">\n"), ["cm.yaml:5: line 3 of data.Corefile: unknown directive `redy`"]),
    (
        "cm.json",
        JSON_MAP,
        ["cm.json:3: line 2 of data.Corefile: unknown directive `x`"],
    ),
    ("Corefile", "(s) {\n bufsize x\n}\na {\n import s\n}\nb {\n import s\n}\n", ["Corefile:2: bufsize: "]),
    (
        "Corefile",
        ". {\n root /nonexistent\n dnssec {\n  key file nope\n }\n whoami\n}\n",
        ["Corefile:4: dnssec: /nonexistent/nope.key: "],
    ),
    ("x", "hello world\n", [f"x:1: has an unknown format; {WANTED}"]),
    ("x", "", [f"x: is empty; {WANTED}"]),
    ("a.yaml", " \n", [f"a.yaml: is empty; {WANTED}"]),
    ("x", "# nothing\n", [f"x: has only comments; {WANTED}"]),
]


@pytest.mark.parametrize(("name", "text", "says"), TABLE)
def test_every_mistake_is_told_at_its_line(folder: Path, name: str, text: str, says: list[str]) -> None:
    (folder / name).write_text(text)
    code, found = run("check", name)
    if not says:
        assert (code, [each.split(" in ")[0] for each in found]) == (0, ["no mistakes"]), found
        return
    assert (code, len(found)) == (2, len(says)), found
    assert all(each.startswith(said) for each, said in zip(found, says, strict=True)), found


def test_a_path_that_cannot_be_looked_at_is_a_mistake(folder: Path) -> None:
    (folder / "loop").symlink_to("loop")
    (folder / "a.yaml").write_text(SERVICE)
    assert run("check", "loop", "a.yaml/b", "none") == (
        2,
        [
            "a.yaml/b: cannot be read: Not a directory",
            "loop: cannot be read: Too many levels of symbolic links",
            "none: no such file or folder",
        ],
    )


def test_names_and_texts_of_files_control_no_terminal(folder: Path) -> None:
    Path(os.fsdecode(b"\xff\x1b[2J.yaml")).write_text(SERVICE + 'x: &a 1\n"\\e]0;x\\a\\n": 1\n')
    code, found = run("check", str(folder))
    assert (code, len(found)) == (2, 2), found
    assert r"\udcff\x1b[2J.yaml:7: \x1b]0;x\x07" in found[1], found


def test_files_folders_and_standard_input_together(folder: Path) -> None:
    (folder / "m").mkdir()
    (folder / "m" / "a.yaml").write_text(SERVICE)
    (folder / "m" / "values.yaml").write_text("a: 1\n")
    os.mkfifo(folder / "m" / "pipe.yaml")
    (folder / "bin").write_bytes(b"\xff")
    (folder / "empty").mkdir()
    given = SERVICE + "---\n" + SERVICE.replace("web", "b").replace("  ports", "  clusterIP: 10.96.0.9\n  portz")
    code, found = run("check", "none", "m", "empty", "bin", "-", stdin=given)
    assert (code, found) == (
        2,
        [
            f"m/values.yaml:1: has an unknown format; {WANTED}",
            "-:1: Service web is already defined at m/a.yaml:1; that definition is used",
            "-:10: spec.ports: Required value",
            "-:12: spec.portz: unknown field",
            "bin:1: not UTF-8: byte 0xff",
            "m/pipe.yaml: cannot be read: it is not a regular file",
            "none: no such file or folder",
        ],
    )


def test_an_empty_file_in_a_folder_and_an_empty_folder_are_told_and_no_mistake(folder: Path) -> None:
    (folder / "m").mkdir()
    (folder / "m" / "a.yaml").write_text("")
    (folder / "m" / "b.yaml").write_text("# nothing\n")
    (folder / "n").mkdir()
    result = CliRunner().invoke(main, ["check", "m", "n"])
    assert (result.exit_code, result.stdout) == (0, "no mistakes in 0 objects; 2 warnings\n")
    assert result.stderr == "Warning: m/a.yaml: is empty\nWarning: n: no manifests below it, such as *.yaml\n"


BASE = SERVICE + "  clusterIP: 10.96.0.9\n"
KUSTOMIZED = {
    "base/kustomization.yaml": "resources: [web.yaml]\n",
    "base/web.yaml": BASE,
    "dev/kustomization.yaml": "resources: [../base, cart.yaml]\npatches:\n- path: web.yaml\n- path: json.yaml\n"
    "- path: broken.yaml\n",
    "dev/cart.yaml": SERVICE.replace("web", "cart"),
    "dev/web.yaml": BASE.replace("80", "http"),
    "dev/json.yaml": "- {op: remove, path: /spec}\n",
    "dev/broken.yaml": "kind: [\n",
    "prod/kustomization.yaml": "resources: [../base, cart.yaml]\n",
    "prod/cart.yaml": SERVICE.replace("web", "cart") + "  clusterIP: 10.96.0.9\n",
}


def test_overlays_are_alternatives_and_patches_no_manifests(folder: Path) -> None:
    for name, text in KUSTOMIZED.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    result = CliRunner().invoke(main, ["check", "."])
    broken, clash = result.stdout.splitlines()
    assert broken.startswith("dev/broken.yaml:1: not YAML: ")
    assert clash.startswith(
        "prod/cart.yaml:6: spec.clusterIP: cluster IP 10.96.0.9 is also requested by Service default/web"
    )
    assert result.stderr == (
        "Warning: dev/kustomization.yaml:1: kind: skipped: kdns builds no kustomizations, and leaves patches out; "
        "`kubectl kustomize dev` writes what it builds\n"
    )


def test_ranges_are_those_of_the_cluster(folder: Path) -> None:
    (folder / "a.yaml").write_text(
        SERVICE + "  clusterIP: 172.20.0.9\n  type: NodePort\n---\n"
        "apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: w}\n"
    )
    assert run("check", "a.yaml")[0] == 2
    result = CliRunner().invoke(main, ["check", "--service-cidr", "172.20.0.0/16", "a.yaml"])
    assert (result.exit_code, result.stdout) == (0, "no mistakes in 1 object; 1 warning\n")
    assert result.stderr == "Warning: a.yaml:9: kind: skipped: example.com/v1 Widget is not served\n"
    assert run("check", "--service-cidr", "x", "a.yaml") == (2, [])


COREFILE = """\
a.org {
    redy
    kubernetes cluster.local {
        pods insecure
        kubeconfig kube.conf
    }
    hosts names {
        fallthrough
    }
    root zones
    file a.org
    file pipe b.org
    file none c.org
    auto {
        directory nowhere
    }
}
tls://a.org {
    tls cert.pem key.pem
    bind no-such-link
}
"""


def test_files_that_a_corefile_names_are_read_and_nothing_is_started(folder: Path) -> None:
    (folder / "Corefile").write_text(COREFILE)
    (folder / "zones").mkdir()
    (folder / "zones" / "names").write_text("192.0.2.1 a a..b\n192.0.2.2\n\n# x\nhost 192.0.2.3\n")
    (folder / "zones" / "a.org").write_text(SOA + "www 60 IN A 192.0.2.1\n$INCLUDE pipe\n")
    os.mkfifo(folder / "zones" / "pipe")
    expected = [
        "Corefile:2: unknown directive `redy`; did you mean `ready`? (at 'redy')",
        "Corefile:5: kubernetes: kube.conf: No such file or directory; expected a kubeconfig file that can be read",
        "Corefile:12: file: zones/pipe: cannot be read: it is not a regular file",
        "Corefile:13: file: zones/none: cannot be read: No such file or directory",
        "Corefile:15: auto: zones/nowhere: cannot be read: No such file or directory",
        "Corefile:19: tls: no certificate and key in cert.pem and key.pem: No such file or directory",
        "zones/a.org:3: $INCLUDE pipe: cannot be read: it is not a regular file",
    ]
    ignored = [
        "Warning: zones/names:1: expected a host name, got 'a..b'; this word is ignored",
        "Warning: zones/names:2: expected a name after 192.0.2.2; the line is ignored",
        "Warning: zones/names:5: the address comes first: `192.0.2.3 host`; the line is ignored",
    ]
    for command in [
        ["check", "Corefile"],
        ["serve", "-conf", "Corefile", "-p", "1053", "-quiet", "-pidfile", "pid", "--validate"],
    ]:
        assert run(*command) == (2, expected)
        assert CliRunner().invoke(main, command).stderr.splitlines() == ignored
    assert not (folder / "pid").exists()
    (folder / "Corefile").write_text(". {\nwhoami\n}\n")
    assert run("serve", "--validate") == (0, [])
    assert run("serve", "-conf", "none", "--validate") == (2, ["none: cannot be read: No such file or directory"])
    assert run("check", "-", stdin=COREFILE.replace("    redy\n", "")) == (0, ["no mistakes in 1 Corefile"])


EXAMPLE = {
    "Corefile": """\
. {
    kubernetes cluster.local {
        tll 30
    }
    route53 example.com:Z1
    file zones/example.org example.org
}
""",
    "kube-proxy.conf": SETTINGS + "mode: iptable\niptables:\n  masqueradeBit: 40\n",
    "manifests/cart.yaml": SERVICE.replace("web", "cart") + "  clusterIP: 10.96.0.20\n",
    "manifests/web.yaml": "# the shop's front\n\napiVersion: v1\nkind: Service\nmetadata:\n  name: web\nspec:\n"
    "  clusterIP: 10.96.0.20\n  ports:\n  - {port: 80, targetPort: a b}\n",
}


def test_the_example_of_the_page(folder: Path) -> None:
    page = (Path(__file__).parents[3] / "docs" / "check.md").read_text(encoding="utf-8")
    command, *shown = page.partition("```console\n")[2].partition("```")[0].splitlines()
    for name, text in EXAMPLE.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    assert run(*command.removeprefix("$ kdns ").split()) == (2, shown)


def service(name: str, spec: str, namespace: str = "default") -> str:
    return (
        f"apiVersion: v1\nkind: Service\nmetadata: {{name: {name}, namespace: {namespace}}}\n"
        f"spec: {{ports: [{{port: 80}}], {spec}}}\n---\n"
    )


def template(kind: str, labels: str, more: str = "") -> str:
    group = "v1" if kind in ("Pod", "ReplicationController") else "batch/v1" if "Job" in kind else "apps/v1"
    containers = "containers: [{name: a, image: a}]"
    pod = f"metadata: {{labels: {{{labels}}}}}, spec: {{{containers}, restartPolicy: %s}}"
    head = f"apiVersion: {group}\nkind: {kind}\n"
    if kind == "Pod":
        return f"{head}metadata: {{name: it, labels: {{{labels}}}}}\nspec: {{{containers}}}\n---\n"
    if kind == "CronJob":
        job = f"{{spec: {{template: {{{pod % 'Never'}}}}}}}"
        return f"{head}metadata: {{name: it}}\nspec: {{schedule: '1 * * * *', jobTemplate: {job}}}\n---\n"
    if kind == "Job":
        return f"{head}metadata: {{name: it}}\nspec: {{template: {{{pod % 'Never'}}}}}\n---\n"
    selector = f"{{{labels}}}" if kind == "ReplicationController" else f"{{matchLabels: {{{labels}}}}}"
    spec = f"selector: {selector}, template: {{{pod % 'Always'}}}{more}"
    return f"{head}metadata: {{name: it}}\nspec: {{{spec}}}\n---\n"


MAKERS = ["Pod", "Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "ReplicationController", "Job", "CronJob"]
NO_POD = "spec.selector: matches no Pod and no Pod template of these files"
SLICE = """\
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: a-1, labels: {kubernetes.io/service-name: a}}
addressType: IPv4
endpoints: []
---
"""
WARNINGS: list[tuple[str, str, list[str]]] = [
    *(("a.yaml", service("a", "selector: {app: a}") + template(kind, "app: a, b: c"), []) for kind in MAKERS),
    *(("a.yaml", service("a", "selector: {app: b}") + template(kind, "app: a"), [NO_POD]) for kind in MAKERS),
    ("a.yaml", service("a", "selector: {app: a}"), [NO_POD]),
    ("a.yaml", service("a", "selector: {app: a}") + SLICE, []),
    (
        "a.yaml",
        service("a", "selector: {statefulset.kubernetes.io/pod-name: it-0}") + template("StatefulSet", "app: a"),
        [],
    ),
    (
        "a.yaml",
        service("a", "selector: {statefulset.kubernetes.io/pod-name: other-0}") + template("StatefulSet", "app: a"),
        [NO_POD],
    ),
    ("a.yaml", service("a", "selector: {job-name: it}") + template("Job", "app: a"), []),
    ("a.yaml", service("a", "clusterIP: None"), ["spec.clusterIP: is headless, without a selector"]),
    ("a.yaml", service("a", "clusterIP: None") + SLICE, []),
    ("a.yaml", service("a", "type: ExternalName, externalName: example.org"), []),
    ("a.yaml", service("a", "type: ExternalName, externalName: 192.0.2.1"), ["spec.externalName: is an address"]),
    (
        "a.yaml",
        service("a", "type: ExternalName, externalName: b.default.svc.cluster.local")
        + service("b", "type: ExternalName, externalName: c.default.svc.cluster.local")
        + service("c", "type: ExternalName, externalName: a.default.svc.cluster.local")
        + service("e", "type: ExternalName, externalName: a.default.svc.cluster.local")
        + service("d", "type: ExternalName, externalName: d.x.svc.cluster.local"),
        [
            "spec.externalName: leads back to itself: default/a → default/b → default/c → default/a",
            "spec.externalName: leads back to itself: default/b → default/c → default/a → default/b",
            "spec.externalName: leads back to itself: default/c → default/a → default/b → default/c",
        ],
    ),
    ("Corefile", ".:53 {\nforward . 192.0.2.1 127.0.0.53 127.0.0.1:1053\n}\n", []),
    (
        "Corefile",
        ".:53 {\nforward . 192.0.2.1 127.0.0.1\n}\n",
        ["`forward` to 127.0.0.1, port 53, queries this server"],
    ),
    ("Corefile", ".:53 {\nbind 192.0.2.1\nforward . 192.0.2.1\n}\n", ["`forward` to 192.0.2.1, port 53, queries this"]),
    ("Corefile", ".:53 {\nbind 192.0.2.1\nforward . 127.0.0.1\n}\n", []),
    ("Corefile", ".:53 {\nforward . tls://127.0.0.1\n}\n", []),
    ("Corefile", "local lan example.org {\nwhoami\n}\n", []),
    ("Corefile", ". whoami {\nerrors\n}\n", ["`whoami` is taken for a zone, served on every address; `whoami` is a"]),
    (
        "Corefile",
        "chache {\nbind ::1\nerrors\n}\n",
        ["`chache` is taken for a zone, served on the addresses of `bind`"],
    ),
    (
        "Corefile",
        ". {\nhosts {\nhost.test 192.0.2.1\n192.0.2.2\n}\n}\n",
        ["hosts: the address", "hosts: expected a name"],
    ),
    ("Corefile", ". {\nhosts {\n192.0.2.1 a..b\n}\n}\n", ["hosts: expected a host name, got 'a..b'; this word is ign"]),
    (
        "Corefile",
        "a.test {\nrecords {\na.other. A 192.0.2.1\n}\n}\n",
        ["records: the record is not in a.test.; the line"],
    ),
    (
        "a.yaml",
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata:\n  Corefile: |\n    .\n    hosts { a ::1 }\n",
        ["data.Corefile: hosts: the address comes first: `::1 a`; the line is ignored"],
    ),
    (
        "Corefile",
        ". {\nview a {\nexpr 'a'\nexpr type() == 'A'\nexpr size()\n}\n}\n",
        ["view: the expression is a string and never true", "view: the expression is a number and never true"],
    ),
    ("a.yaml", "# nothing\n---\n# more\n", ["has only comments"]),
    ("Corefile", "192.0.2.1:53 {\nwhoami\n}\n", ["`192.0.2.1` is taken for a zone; `bind 192.0.2.1` listens on the"]),
    ("Corefile", ". {\ncache 5m\nlog stdout\n}\n", ["`5m` is taken for a zone; a TTL is", "`stdout` is taken for a"]),
    ("Corefile", ". {\nrewrite name regex (.*)a $1b\n}\n", ["rewrite: `$1` is literal text; a group of the expre"]),
    ("Corefile", "dn42 {\nforward . 192.0.2.1\n}\n", []),
    ("Corefile", "health {\nhosts /dev/null health\n}\n", []),
    ("Corefile", "host home {\nforward . 192.0.2.1\n}\n", []),
    (
        "Corefile",
        "home log {\nforward . 192.0.2.1\n}\n",
        ["`log` is taken for a zone, served on every address; `log` is a"],
    ),
    ("Corefile", ". stray {\nwhoami\n}\n", ["`stray` is taken for a zone, served on every address; `.` of the"]),
    (
        "Corefile",
        "cluster.local stray {\nerrors\nkubernetes cluster.local\n}\n",
        ["`stray` is taken for a zone, serve"],
    ),
    ("Corefile", "example.org stray {\nhosts {\n192.0.2.1 a.example.org\n}\n}\n", []),
    (
        "Corefile",
        "example.org stray {\nhosts /dev/null example.org\ncache\n}\n",
        ["`stray` is taken for a zone, served on every address; no direc"],
    ),
    ("Corefile", "cluster.local lan {\nkubernetes cluster.local\nforward . 192.0.2.1\n}\n", []),
    ("Corefile", "cluster.local lan {\nkubernetes cluster.local\nhosts /dev/null home.lan\n}\n", []),
    ("Corefile", "cluster.local lan {\nkubernetes\n}\n", []),
    ("Corefile", "lan {\nerrors\n}\n", []),
    ("Corefile", ". {\nwhoami\n}\nstray {\n}\n", ["`stray` is taken for a zone, served on every address; no direc"]),
    (
        "a.yaml",
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata:\n  Corefile: |\n    . stray {\n    }\n",
        ["data.Corefile: `stray` is taken for a zone"],
    ),
    (
        "c.conf",
        OLD_SETTINGS,
        [
            "resourceContainer: is ignored, kube-proxy has removed it; containers are the kubelet's",
            "conntrack.max: is ignored, kube-proxy has removed it; maxPerCore and min set the limit",
            "Mode: is ignored, there is no such field; did you mean mode?",
            "clusterCIDR: duplicate key",
            "only the first document counts for KubeProxyConfiguration",
        ],
    ),
    (
        "a.yaml",
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata:\n  config.conf: |\n"
        + "".join(f"    {line}\n" for line in OLD_SETTINGS.splitlines()),
        [
            "data.config.conf: resourceContainer: is ignored",
            "data.config.conf: conntrack.max: is ignored",
            "data.config.conf: Mode: is ignored",
            "data.config.conf: clusterCIDR: duplicate key",
            "data.config.conf: only the first document counts",
        ],
    ),
    (
        "Corefile",
        "(s) {\n hosts {\n  a.test 10.0.0.1\n }\n}\na {\n import s\n}\nb {\n import s\n}\n",
        ["hosts: the address comes first"],
    ),
]


@pytest.mark.parametrize(("name", "text", "says"), WARNINGS)
def test_what_is_valid_and_rarely_meant_is_warned_of(folder: Path, name: str, text: str, says: list[str]) -> None:
    (folder / name).write_text(text)
    result = CliRunner().invoke(main, ["check", name])
    told = [line.partition(": ")[2].partition(": ")[2] for line in result.stderr.splitlines()]
    assert (result.exit_code, len(told)) == (0, len(says)), result.output
    assert all(each.startswith(said) for each, said in zip(told, says, strict=True)), told
    assert run("check", "--strict", name)[0] == (2 if says else 0)


def test_json_has_what_was_read_mistakes_and_warnings(folder: Path) -> None:
    (folder / "Corefile").write_text(". stray {\n}\nb {\nredy\n}\n")
    (folder / "kube-proxy.conf").write_text(SETTINGS)
    (folder / "a.yaml").write_text(service("a", "selector: {app: a}, typ: x"))
    code, (line,) = run("check", "-o", "json", "Corefile", "kube-proxy.conf", "a.yaml")
    found = json.loads(line)
    assert (code, found["read"]) == (2, {"Corefile": 1, "KubeProxyConfiguration": 1, "object": 1})
    assert [(each["path"], each["line"], each["field"]) for each in found["mistakes"]] == [
        ("Corefile", 4, "redy"),
        ("a.yaml", 4, "spec.typ"),
    ]
    warned = [(each["path"], each["line"], each["field"]) for each in found["warnings"]]
    assert warned == [("Corefile", 1, "stray"), ("kube-proxy.conf", 1, "clusterCIDR")]
    (folder / "a.yaml").write_text(SERVICE)
    (folder / "b.yaml").write_text("# kind: Service\n")
    assert run("check", "b.yaml") == (0, ["no mistakes in 0 objects; 1 warning"])
    assert run("check", "kube-proxy.conf", "a.yaml") == (
        0,
        ["no mistakes in 1 KubeProxyConfiguration, 1 object; 1 warning"],
    )


def test_mistakes_of_a_corefile_hide_no_warnings_of_manifests(folder: Path) -> None:
    (folder / "Corefile").write_text(".:53 {\nredy\n}\n")
    (folder / "a.yaml").write_text(service("a", "selector: {app: a}"))
    code, (line,) = run("check", "-o", "json", "Corefile", "a.yaml")
    found = json.loads(line)
    assert (code, [each["field"] for each in found["mistakes"]]) == (2, ["redy"])
    assert [each["field"] for each in found["warnings"]] == ["spec.selector"]


@pytest.mark.parametrize(
    ("directive", "says"),
    [
        (
            "fanout",
            "Corefile:2: `fanout` is an external plugin of CoreDNS, which kdns does not have; instead: `forward`",
        ),
        ("recalls", "Corefile:2: unknown directive `recalls`; kdns has acl, "),
        ("kubernets", "Corefile:2: unknown directive `kubernets`; did you mean `kubernetes`?"),
    ],
)
def test_what_a_word_may_mean_is_near(folder: Path, directive: str, says: str) -> None:
    (folder / "Corefile").write_text(f". {{\n{directive}\n}}\n")
    code, (line,) = run("check", "Corefile")
    assert (code, line.startswith(says)) == (2, True), line


def test_a_kustomization_of_another_name_is_built_by_nothing(folder: Path) -> None:
    head = "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\n"
    (folder / "dev.yaml").write_text(f"{head}namePrefix: dev-\nresources: [base.yaml]\n")
    stderr = CliRunner().invoke(main, ["check", "."]).stderr
    assert "dev.yaml:1: kind: skipped: kdns builds no kustomizations, and leaves patches out\n" in stderr
