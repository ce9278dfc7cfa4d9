"""Whom `kdns up` asks for names outside of the cluster, and how this machine's resolver is led to those inside."""

from pathlib import Path

import pytest

from kdns.apps import resolvers, up
from kdns.apps.control_plane import ControlPlaneOptions
from kdns.controlplane.cluster_config import ClusterConfig
from kdns.net import HostPort

STUB = "nameserver 127.0.0.53\noptions edns0 trust-ad\nsearch .\n"


@pytest.mark.parametrize(
    ("resolv_conf", "of_systemd", "host", "asked"),
    [
        ("nameserver 192.0.2.53\n", "", "127.0.0.1", "resolv.conf"),
        ("nameserver 127.0.0.1\n", "", "127.0.0.1", "resolv.conf"),
        (STUB, "nameserver 192.0.2.53\n", "127.0.0.1", "systemd"),
        (STUB + "nameserver 192.0.2.1\n", "nameserver 192.0.2.53\n", "127.0.0.1", "resolv.conf"),
        (STUB, "# none\n", "127.0.0.1", ""),
        ("search example.org\n", "nameserver 192.0.2.53\n", "127.0.0.1", ""),
        ("nameserver 192.0.2.53\n", "", "192.0.2.1", ""),
    ],
)
def test_resolvers_of_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, resolv_conf: str, of_systemd: str, host: str, asked: str
) -> None:
    files = {"RESOLV_CONF": ("resolv.conf", resolv_conf), "SYSTEMD_RESOLV_CONF": ("systemd", of_systemd)}
    for name, (file, text) in files.items():
        (tmp_path / file).write_text(text)
        monkeypatch.setattr(resolvers, name, tmp_path / file)
    control_plane = ControlPlaneOptions(ClusterConfig(), HostPort("127.0.0.1", 0))
    servers = up.dns_config(up.UpOptions(control_plane, HostPort(host, 0), Path("kc"))).checked()
    assert [file for file, _ in files.values() if f"'{tmp_path / file}'" in repr(servers)] == ([asked] if asked else [])


@pytest.mark.parametrize(
    ("has", "line"),
    [
        (["run/systemd/resolve/x", "etc/dnsmasq.d/x"], "sudo kdns laptop on: docs/laptop.md"),
        (["etc/NetworkManager/conf.d/dns.conf"], "sudo kdns laptop on: docs/laptop.md"),
        (["etc/NetworkManager/NetworkManager.d/x"], "for programs of this machine: docs/laptop.md"),
        (["etc/dnsmasq.d/kdns.conf"], ""),
    ],
)
def test_the_recipe_is_a_command_for_the_resolver_here(tmp_path: Path, has: list[str], line: str) -> None:
    for path in has:
        (tmp_path / path).parent.mkdir(parents=True)
        (tmp_path / path).write_text("[main]\ndns = dnsmasq\n")
    assert resolvers.recipe(HostPort("127.0.0.1", 1053), "cluster.local", tmp_path) == ((line,) if line else ())
    if "laptop on" in line:
        others = resolvers.recipe(HostPort("127.0.0.1", 53), "k8s.test", tmp_path)
        assert others == ("sudo kdns laptop on --dns 127.0.0.1:53 --cluster-domain k8s.test: docs/laptop.md",)
