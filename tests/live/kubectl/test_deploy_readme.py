"""The commands of deploy/README.md, as they are written, in the order of the page, on a cluster of `kdns up`."""

from __future__ import annotations

import json
import re
import shlex
import time
from pathlib import Path

from click.testing import CliRunner
from kdns_process import DEADLINE_S, ROOT, kdns_up

from kdns.cli.main import main
from kdns.proxy.nftables.objects import NFT_FAMILY, TABLE

README = (ROOT / "deploy" / "README.md").read_text()
BEFORE = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: coredns, namespace: kube-system}
spec:
  replicas: 2
  selector: {matchLabels: {k8s-app: kube-dns, is: coredns}}
  template:
    metadata: {labels: {k8s-app: kube-dns, is: coredns}}
    spec: {containers: [{name: coredns, image: coredns}]}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: kube-proxy, namespace: kube-system}
spec:
  selector: {matchLabels: {k8s-app: kube-proxy}}
  template:
    metadata: {labels: {k8s-app: kube-proxy}}
    spec:
      nodeSelector: {kubernetes.io/os: linux}
      containers: [{name: kube-proxy, image: kube-proxy}]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: coredns, namespace: kube-system}
data: {Corefile: ".:53 {\\n    route53\\n}\\n"}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: kube-proxy, namespace: kube-system}
data:
  config.conf: |-
    apiVersion: kubeproxy.config.k8s.io/v1alpha1
    kind: KubeProxyConfiguration
    winkernel: {networkName: a}
"""


def commands(heading: str) -> list[list[str]]:
    """The commands under a heading, with the files of deploy/ where they are."""
    (section,) = re.findall(rf"^#+ {heading}\n(.*?)(?=^#|\Z)", README, re.MULTILINE | re.DOTALL)
    (block,) = re.findall(r"^```sh\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
    lines = [shlex.split(line) for line in block.splitlines()]
    return [[str(ROOT / word) if word.startswith("deploy/") else word for word in line] for line in lines]


def before_moving() -> str:
    """The command that looks at what there is."""
    (section,) = re.findall(r"^## Before\n(.*?)^## ", README, re.MULTILINE | re.DOTALL)
    (block,) = re.findall(r"^ *```sh\n(.*?)^ *```", section, re.MULTILINE | re.DOTALL)
    return str(block).strip()


def test_every_way_there_and_back(tmp_path: Path) -> None:
    (tmp_path / "before.yaml").write_text(BEFORE)
    with kdns_up(tmp_path, "before.yaml") as cluster:

        def are_ready(wanted: int, kind: str, name: str) -> None:
            field = {"deployment": "readyReplicas", "daemonset": "numberReady"}[kind]
            deadline_s = time.monotonic() + DEADLINE_S
            while True:
                status = json.loads(cluster.kubectl("-n", "kube-system", "get", kind, name, "-o", "json"))["status"]
                if status.get(field, 0) == wanted:
                    return
                assert time.monotonic() < deadline_s, status
                time.sleep(0.1)

        def follow(heading: str) -> None:
            for program, *arguments in commands(heading):
                assert program == "kubectl"
                cluster.kubectl(*arguments)

        uid = ("-n", "kube-system", "get", "service", "kube-dns", "-o", "jsonpath={.metadata.uid}")
        service = cluster.kubectl(*uid)
        are_ready(2, "deployment", "coredns")
        (kubectl, *arguments), check = (shlex.split(part) for part in before_moving().split(" | "))
        found = CliRunner().invoke(main, check[1:], input=cluster.kubectl(*arguments))
        assert (kubectl, check[0], found.exit_code) == ("kubectl", "kdns", 2)
        assert "data.Corefile: kdns does not have the directive `route53`" in found.stdout
        assert "data.config.conf: winkernel: Forbidden: kdns does not run on Windows" in found.stdout
        assert len(found.stdout.splitlines()) == 2
        follow("Moving over")
        are_ready(2, "deployment", "kdns")
        are_ready(0, "deployment", "coredns")
        follow("Moving back")
        are_ready(2, "deployment", "coredns")
        assert cluster.kubectl(*uid) == service
        are_ready(1, "daemonset", "kube-proxy")
        follow("In place of kube-proxy")
        are_ready(1, "daemonset", "kdns-proxy")
        are_ready(0, "daemonset", "kube-proxy")
        follow("Back to kube-proxy")
        are_ready(1, "daemonset", "kube-proxy")
        left = cluster.kubectl(
            "get", "all,configmaps,serviceaccounts,clusterroles", "-A", "-l", "app.kubernetes.io/name"
        )
        assert "kdns" not in left


def test_the_tables_of_a_node_are_named() -> None:
    assert commands("A node that has no kdns any more") == [
        ["nft", "delete", "table", family, TABLE] for family in NFT_FAMILY.values()
    ]
