"""Whom `kdns up` asks for names outside of the cluster, and how this machine's resolver is led to those inside."""

from __future__ import annotations

from pathlib import Path

import pytest

from kdns.apps import resolvers, up
from kdns.apps.control_plane import ControlPlaneOptions
from kdns.controlplane.meta.cluster_config import ClusterConfig
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
        monkeypatch.setattr(up, name, tmp_path / file)
    control_plane = ControlPlaneOptions(ClusterConfig(), HostPort("127.0.0.1", 0))
    servers = up.dns_config(up.UpOptions(control_plane, HostPort(host, 0), Path("kc"))).checked()
    assert [file for file, _ in files.values() if f"'{tmp_path / file}'" in repr(servers)] == ([asked] if asked else [])


@pytest.mark.parametrize(
    ("has", "lines"),
    [
        (
            ["run/systemd/resolve/x", "etc/dnsmasq.d/x"],
            (
                "DNS=127.0.0.1:1053, Domains=~cluster.local in {}/etc/systemd/resolved.conf.d/kdns.conf,",
                "then sudo systemctl restart systemd-resolved: docs/laptop.md",
            ),
        ),
        (
            ["etc/dnsmasq.d/x"],
            (
                "server=/cluster.local/127.0.0.1#1053 in {}/etc/dnsmasq.d/kdns.conf,",
                "then sudo systemctl restart dnsmasq: docs/laptop.md",
            ),
        ),
        (
            ["etc/NetworkManager/conf.d/dns.conf"],
            (
                "server=/cluster.local/127.0.0.1#1053 in {}/etc/NetworkManager/dnsmasq.d/kdns.conf,",
                "then sudo systemctl restart NetworkManager: docs/laptop.md",
            ),
        ),
        (
            ["etc/resolver/x"],
            ("nameserver 127.0.0.1, port 1053 in {}/etc/resolver/cluster.local,", "see docs/laptop.md"),
        ),
        (["etc/NetworkManager/NetworkManager.d/x"], ("for programs of this machine: docs/laptop.md",)),
        (["etc/dnsmasq.d/kdns.conf"], ()),
    ],
)
def test_the_recipe_is_that_of_the_resolver_here(tmp_path: Path, has: list[str], lines: tuple[str, ...]) -> None:
    for path in has:
        (tmp_path / path).parent.mkdir(parents=True)
        (tmp_path / path).write_text("[main]\ndns = dnsmasq\n")
    told = resolvers.recipe("127.0.0.1", 1053, "cluster.local", tmp_path)
    assert told == tuple(line.format(tmp_path) for line in lines)
    page = (Path(__file__).parents[3] / resolvers.PAGE).read_text(encoding="utf-8")
    for line in told[:-1]:
        content, _, file = line.rstrip(",").partition(" in ")
        assert all(each in page for each in (file.removeprefix(str(tmp_path)), *content.split(", ")))
