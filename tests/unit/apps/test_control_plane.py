from ipaddress import ip_network
from pathlib import Path

import pytest

from kdns.apps.control_plane import ControlPlaneOptions, from_json, to_json
from kdns.controlplane.cluster_config import AddressRange, ClusterConfig
from kdns.net import HostPort

EVERYTHING = ControlPlaneOptions(
    ClusterConfig(
        (ip_network("10.1.0.0/16"), ip_network("fd00:1::/112")),
        range(30000, 30010),
        (ip_network("10.2.0.0/16"), ip_network("fd00:2::/64")),
        "node",
        "zone",
        ("192.0.2.1", "2001:db8::1"),
        "example.org",
        simulate_pods=False,
        lb_pool=(AddressRange(6, 1 << 125, 1 << 126, "2000::-4000::"),),
        root_ca="PEM",
        platform=("windows", "arm64"),
    ),
    HostPort("::1", 8001),
    (Path("a"), Path("b\udcff")),
    {Path("-"): "kind: Service\n"},
    frozenset((Path("--add"),)),
    Path("data"),
    Path("tokens"),
    "cert",
    "key",
    "ca",
    "token",
)


@pytest.mark.parametrize("options", [EVERYTHING, ControlPlaneOptions(ClusterConfig(), HostPort("127.0.0.1", 0))])
def test_the_child_gets_the_options(options: ControlPlaneOptions) -> None:
    assert from_json(to_json(options)) == options
