"""`kdns check` and `kdns serve --validate`: every mistake of every kind of file at its line, and which kind it is."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from yaml_file import yaml_file

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


CASES: dict[str, list[dict[str, Any]]] = yaml_file(Path(__file__).parents[2] / "golden" / "check.yaml")


@pytest.mark.parametrize("case", CASES["mistakes"])
def test_every_mistake_is_told_at_its_line(folder: Path, case: dict[str, Any]) -> None:
    name = case.get("file", "Corefile")
    says = [line.replace("{WANTED}", WANTED) for line in case.get("says", ["no mistakes in "])]
    (folder / name).write_text(case["text"])
    code, found = run("check", name)
    assert (code, len(found)) == (2 if "says" in case else 0, len(says)), found
    assert all(line.startswith(start) for line, start in zip(found, says, strict=True)), found


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
SELECTORS: list[dict[str, Any]] = [
    case
    for kind in MAKERS
    for case in (
        {"file": "a.yaml", "text": service("a", "selector: {app: a}") + template(kind, "app: a, b: c")},
        {"file": "a.yaml", "text": service("a", "selector: {app: b}") + template(kind, "app: a"), "says": [NO_POD]},
    )
]


@pytest.mark.parametrize("case", [*SELECTORS, *CASES["warnings"]])
def test_what_is_valid_and_rarely_meant_is_warned_of(folder: Path, case: dict[str, Any]) -> None:
    name, says = case.get("file", "Corefile"), case.get("says", [])
    (folder / name).write_text(case["text"])
    result = CliRunner().invoke(main, ["check", name])
    told = [line.partition(": ")[2].partition(": ")[2] for line in result.stderr.splitlines()]
    assert (result.exit_code, len(told)) == (0, len(says)), result.output
    assert all(line.startswith(start) for line, start in zip(told, says, strict=True)), told
    assert run("check", "--strict", name)[0] == (2 if says else 0)


def test_json_has_what_was_read_mistakes_and_warnings(folder: Path) -> None:
    (folder / "Corefile").write_text(". stray {\n}\nb {\nredy\n}\n")
    (folder / "kube-proxy.conf").write_text(SETTINGS)
    (folder / "a.yaml").write_text(service("a", "selector: {app: a}, typ: x"))
    code, (line,) = run("check", "-o", "json", "Corefile", "kube-proxy.conf", "a.yaml")
    found = json.loads(line)
    assert (code, found["read"]) == (2, {"Corefile": 1, "KubeProxyConfiguration": 1, "object": 1})
    assert [(mistake["path"], mistake["line"], mistake["field"]) for mistake in found["mistakes"]] == [
        ("Corefile", 4, "redy"),
        ("a.yaml", 4, "spec.typ"),
    ]
    warned = [(warning["path"], warning["line"], warning["field"]) for warning in found["warnings"]]
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
    assert (code, [mistake["field"] for mistake in found["mistakes"]]) == (2, ["redy"])
    assert [warning["field"] for warning in found["warnings"]] == ["spec.selector"]


@pytest.mark.parametrize(
    ("directive", "says"),
    [
        (
            "fanout",
            "Corefile:2: `fanout` is an external plugin of CoreDNS, which kdns does not have; instead: `forward`",
        ),
        ("fanot", "Corefile:2: unknown directive `fanot`; if it is `fanout`: "),
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
