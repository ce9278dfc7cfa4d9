"""Where the API server is, as its client knows it: the address that no Service gets on the node."""

from pathlib import Path

import pytest

from kdns.cluster.io.api_servers import api_servers
from kdns.cluster.source import Source

CONFIG = """
apiVersion: v1
kind: Config
clusters: [{name: a, cluster: {server: "https://192.0.2.7:6443/"}}, {name: b, cluster: {server: "https://192.0.2.8"}}]
contexts: [{name: a, context: {cluster: a}}, {name: b, context: {cluster: b}}]
current-context: a
"""


@pytest.mark.parametrize(
    ("changed", "wanted"),
    [
        ({}, ["192.0.2.7 6443"]),
        ({"context": "b"}, ["192.0.2.8 443"]),
        ({"server": "http://[2001:db8::1]"}, ["2001:db8::1 80"]),
        ({"kubeconfig": "", "endpoint": "https://192.0.2.9:8443"}, ["192.0.2.9 8443"]),
        ({"kubeconfig": ""}, ["10.96.0.1 443"]),
        ({"server": "https://no-such-name.invalid:6443"}, []),
    ],
)
async def test_the_addresses(
    changed: dict[str, str], wanted: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "config"
    path.write_text(CONFIG)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    source = Source(**{"kubeconfig": str(path)} | changed)  # type: ignore[arg-type]
    assert [f"{address} {port}" for address, port in await api_servers(source)] == wanted
