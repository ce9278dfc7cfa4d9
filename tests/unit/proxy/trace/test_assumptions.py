"""Defaults that a trace without a configuration names: those on which its result depends."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from kdns.cli.main import main

OBJECTS = """\
apiVersion: v1
kind: Node
metadata: {name: n1}
status: {addresses: [{type: InternalIP, address: 192.0.2.1}, {type: ExternalIP, address: 198.51.100.1}]}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  type: NodePort
  clusterIP: 10.96.0.20
  externalTrafficPolicy: Local
  ports: [{port: 80, nodePort: 30080}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{port: 8080}]
endpoints: [{addresses: [10.244.2.5], nodeName: n2}]
"""
FORWARDED = "forwarded to 10.244.2.5:8080, which sees the"
IN_NFTABLES = "--proxy-mode=nftables"


@pytest.mark.parametrize(
    ("source", "to", "options", "assumed"),
    [
        ("10.244.1.9", "192.0.2.1:30080", [IN_NFTABLES],
         [f"clusterCIDR is unset; with one that has 10.244.1.9: {FORWARDED} client's address"]),
        ("10.244.1.9", "10.96.0.20:80", [IN_NFTABLES],
         [f"clusterCIDR is unset; with one without 10.244.1.9: {FORWARDED} node's address"]),
        ("192.0.2.1", "10.96.0.20:80", [], []),
        ("192.0.2.1", "198.51.100.1:30080", [IN_NFTABLES],
         [f"nodePortAddresses is unset; with all: {FORWARDED} node's address"]),
        ("192.0.2.1", "198.51.100.1:30080", ["--proxy-mode=iptables"],
         ["nodePortAddresses is unset; with primary: left alone, it goes where the routes lead"]),
        ("127.0.0.1", "127.0.0.1:30080", ["--proxy-mode=iptables"],
         ["nodePortAddresses is unset; with primary: left alone, it goes where the routes lead",
          "iptables.localhostNodePorts is true; if it is false: left alone, it goes where the routes lead"]),
        ("127.0.0.1", "127.0.0.1:30080", [],
         [f"the mode is nftables; in iptables: {FORWARDED} node's address"]),
        ("192.0.2.1", "10.96.0.20:81", [],
         ["the mode is nftables; in iptables: left alone, it goes where the routes lead"]),
        ("192.0.2.1", "10.96.0.20:81", [IN_NFTABLES], []),
        ("10.244.1.9", "192.0.2.1:30080", ["--config"], []),
    ],
)  # fmt: skip
def test_the_defaults_that_decide(tmp_path: Path, source: str, to: str, options: list[str], assumed: list[str]) -> None:
    objects, config = tmp_path / "objects.yaml", tmp_path / "config.yaml"
    objects.write_text(OBJECTS)
    config.write_text("apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n")
    argv = ["trace", "--manifests", str(objects), "--node", "n1", "--from", source, "--to", to]
    done = CliRunner().invoke(main, [*argv, *options, *([str(config)] if "--config" in options else [])])
    assert done.exit_code == 0, done.output
    _, _, listed = done.stdout.partition("Assumed without --config:\n")
    assert [line.strip() for line in listed.splitlines()] == assumed
