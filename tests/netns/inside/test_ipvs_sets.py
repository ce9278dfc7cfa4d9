"""The text of mode ipvs is what ipset and both back ends of iptables take; IPVS itself this kernel may not have."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from dataclasses import replace
from typing import Final

import pytest
from small_cluster import CONFIG, NODE_VIEW, endpoints, service, state

from kdns.proxy.ipvs.base_chains import JUMPS
from kdns.proxy.ipvs.mode import IPVS
from kdns.proxy.ipvs.text import ipvs_text
from kdns.proxy.plan.config import LocalPods, ProxyConfig
from kdns.proxy.plan.planner import plan
from kdns.proxy.xtables.names import IPVS_CHAINS

SERVICES: Final = (
    service(1, endpoints(1, "p1", "r1"), sessionAffinity="ClientIP", external="Local", healthCheckNodePort=32001),
    service(2, loadBalancerSourceRanges=["203.0.113.0/24", "203.0.113.7/32", "2001:db8:2::101/128", "fd00::/8"]),
    service(3, endpoints(3, "r1"), internal="Local", external="Local"),
)
"""None has a rule for a guarded address: those match what IPVS does."""


def ran(command: str, text: str = "") -> str:
    done = subprocess.run(shlex.split(command), input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}: {done.stderr}"
    return done.stdout


@pytest.mark.parametrize("backend", ["nft", "legacy"])
@pytest.mark.parametrize(
    "config",
    [CONFIG, replace(CONFIG, local_pods=None), replace(CONFIG, local_pods=LocalPods(interface_prefix="veth"))],
    ids=["networks", "no detector", "interfaces"],
)
def test_sets_and_rules_load(backend: str, config: ProxyConfig) -> None:
    config = replace(config, mode=IPVS, node_port_addresses=())
    if missing := [name for name in ("ipset", f"iptables-{backend}-restore") if not shutil.which(name)]:
        pytest.skip(f"missing: {', '.join(missing)}")
    wanted: dict[str, set[str]] = {}
    for part in ipvs_text(plan(state(*SERVICES), NODE_VIEW, config)).strip().split("\n\n"):
        program = part.partition(": ")[2].split()[0]
        if program == "ipset":
            ran("ipset restore -exist", part + "\n")
            wanted |= {line.split()[1]: set() for line in part.splitlines() if line.startswith("create")}
            for line in part.splitlines():
                if line.startswith("add"):
                    wanted[line.split()[1]].add(line.split()[2].removesuffix("/32").removesuffix("/128"))
        elif program.endswith("restore"):
            ran(f"{program.replace('-', f'-{backend}-')} --noflush", part + "\n")
    there: dict[str, set[str]] = {name: set() for name in wanted}
    for line in ran("ipset save").splitlines():
        if line.startswith("add"):
            there[line.split()[1]].add(line.split()[2])
    assert there == wanted
    for program in (f"iptables-{backend}", f"ip6tables-{backend}"):
        for jump in JUMPS:
            ran(f"{program} -t {jump.table} -C {jump.chain} {jump}")
        saved = ran(f"{program}-save")
        assert [name for names in IPVS_CHAINS.values() for name in names if f":{name} " not in saved] == []
        for table in IPVS_CHAINS:
            ran(f"{program} -t {table} -F")
            ran(f"{program} -t {table} -X")
    ran("ipset destroy")
