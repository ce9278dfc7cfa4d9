"""The kernel's nftables tables as values that can be compared."""

import json
import re
import subprocess
from collections.abc import Iterable
from typing import Any

from kdns.net import Family
from kdns.proxy.nftables.objects import NFT_FAMILY
from kdns.proxy.nftables.sets import CHAINS, LOCAL_CHAINS, SERVICES


def nft_rules(family: Family) -> dict[str, Any]:
    """The kernel's table by name: elements without order, and without clients, counters and unused chains."""
    listed = subprocess.run(
        ["nft", "-j", "list", "table", NFT_FAMILY[family], "kdns"], capture_output=True, check=True
    ).stdout
    found: dict[str, Any] = {}
    for row in json.loads(listed)["nftables"]:
        ((kind, told),) = row.items()
        told.pop("handle", None)
        if kind == "rule":
            found.setdefault(f"rules of {told['chain']}", []).append(told["expr"])
        elif kind in {"set", "map"}:
            elements = told.pop("elem", [])
            is_affinity = told["name"].startswith("affinity-")
            found[told["name"]] = told, [] if is_affinity else sorted(map(_without_counters, elements))
        elif kind == "chain":
            found[f"chain {told['name']}"] = told
    return _without_unused(found)


def _without_unused(found: dict[str, Any]) -> dict[str, Any]:
    """Leaves out the chains to which no front leads, and their numbers."""
    used = {
        chains.name: (
            about,
            [goto for goto in gotos if json.loads(goto)[0] in _numbers(found, of_services=chains is CHAINS)],
        )
        for chains in (CHAINS, LOCAL_CHAINS)
        for about, gotos in (found[chains.name],)
    }
    targets: set[str] = _targets(goto for _, gotos in used.values() for goto in gotos)
    reached: set[str] = set()
    targets |= {name.removeprefix("chain ") for name in found if name.startswith("chain ") and "hook" in found[name]}
    while new := targets - reached:
        reached |= new
        targets = _targets(found.get(f"rules of {name}", ()) for name in new)
    unused = {name for name in found if name.startswith(("chain ", "rules of ")) and name.split()[-1] not in reached}
    kept = {name: each for name, each in found.items() if name not in unused}
    return kept | used


def _numbers(found: dict[str, Any], *, of_services: bool) -> set[str]:
    """The numbers that fronts have for their chain, or for the lists of a chain that chooses one."""
    services = {service.name for service in SERVICES}
    return {
        json.loads(element)[1]
        for name, each in found.items()
        if isinstance(each, tuple) and each[0].get("map") == "classid" and (name in services) == of_services
        for element in each[1]
    }


def _targets(rules: Iterable[object]) -> set[str]:
    return set(re.findall(r'\{"target": "([^"]+)"\}', json.dumps(list(rules)).replace('\\"', '"')))


def _without_counters(element: Any) -> str:
    key, *data = element if isinstance(element, list) else [element]
    if isinstance(key, dict) and "elem" in key:
        key["elem"].pop("counter", None)
    return json.dumps([key, *data], sort_keys=True)
