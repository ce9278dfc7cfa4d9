"""`kdns check` on a cluster that runs: its objects, the configuration in its ConfigMaps, and what its server knows."""

import json
from pathlib import Path

from click.testing import CliRunner, Result
from kdns_process import kdns_up

from kdns import testing
from kdns.cli.commands.check import check

EXAMPLES = Path(__file__).parents[2] / "examples"
BROKEN = """\
apiVersion: v1
kind: Service
metadata: {name: sel}
spec: {selector: {app: webb}, ports: [{port: 80, name: http}]}
---
apiVersion: v1
kind: Pod
metadata: {name: web-0, labels: {app: web}}
spec: {containers: [{name: c, image: x}]}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: coredns, namespace: kube-system}
data: {Corefile: ".:53 {\\n  kubernets cluster.local\\n}\\n"}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: kube-proxy, namespace: kube-system}
data: {config.conf: "apiVersion: kubeproxy.config.k8s.io/v1alpha1\\nkind: KubeProxyConfiguration\\nmode: iptable\\n"}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: kubelet-config, namespace: kube-system}
data: {kubelet: "kind: KubeletConfiguration\\nclusterDNS: [10.96.7.7]\\n"}
"""
TRANSLATED_TWICE = """\
apiVersion: v1
kind: Service
metadata: {name: api}
spec: {clusterIP: 10.96.0.9, ports: [{port: 80}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: api-1, labels: {kubernetes.io/service-name: api}}
addressType: IPv4
endpoints: [{addresses: [10.96.0.9]}]
ports: [{port: 80}]
"""


def checked(*words: str) -> Result:
    return CliRunner().invoke(check, words)


def test_a_broken_cluster_is_told_worst_first() -> None:
    with testing.cluster(BROKEN) as cluster:
        result = checked("--kubeconfig", str(cluster.kubeconfig), "-o", "json")
        text = checked("--kubeconfig", str(cluster.kubeconfig))
    found = json.loads(result.output)
    assert result.exit_code == text.exit_code == 2
    rows = [(row["severity"], row["cause"], row["namespace"], row["name"]) for row in found["problems"]]
    assert rows[:4] == [
        ("error", "dns-address", "kube-system", "kube-dns"),
        ("error", "corefile", "kube-system", "coredns"),
        ("error", "proxy-config", "kube-system", "kube-proxy"),
        ("error", "selector-misspelt", "default", "sel"),
    ]
    assert {row["severity"] for row in found["problems"][4:]} <= {"note"}
    assert (found["lookedAt"]["pods"], found["notLookedAt"]) == (1, [])
    assert "ConfigMap kube-system/coredns: data.Corefile:2: unknown directive `kubernets`" in text.output
    assert "    do: kubectl set selector service -n default sel app=web\n" in text.output


def test_examples_have_no_problem() -> None:
    with testing.cluster(EXAMPLES) as cluster:
        result = checked("--kubeconfig", str(cluster.kubeconfig), "--strict")
    assert result.exit_code == 0, result.output


def test_a_warning_alone_fails_a_strict_check() -> None:
    with testing.cluster(TRANSLATED_TWICE) as cluster:
        codes = [checked("--kubeconfig", str(cluster.kubeconfig), *words).exit_code for words in ((), ("--strict",))]
    assert codes == [0, 2]


def test_up_says_at_its_start_what_will_not_work(tmp_path: Path) -> None:
    (tmp_path / "broken.yaml").write_text(BROKEN)
    with kdns_up(tmp_path, "broken.yaml") as running:
        running.wait_for(r"broken.yaml:4: spec.selector: matches no Pod and no Pod template of these files")


def test_the_server_says_what_only_it_knows(tmp_path: Path) -> None:
    with kdns_up(tmp_path) as running:
        status = running.wait_for(r"^status +http://(\S+)/status")[1]
        api = running.wait_for(r"^api +http://(\S+)")[1]
        result = checked("--admin", status, "--server", f"http://{api}", "--strict")
        nobody = checked("--admin", api)
    assert result.exit_code == 0, result.output
    assert "no problems in " in result.output
    assert (nobody.exit_code, "no status page of kdns answers there" in nobody.output) == (2, True)
