"""zones/ and examples/ speak of the same addresses, and every zone file is one that a name server loads."""

from ipaddress import IPv4Network, ip_address
from pathlib import Path

import pytest
from dnslib import QTYPE, RR
from served_kinds import CATALOGUE

from kdns.controlplane.apimachinery.kinds import ENDPOINT_SLICE, POD, SERVICE
from kdns.controlplane.manifests.io.files import load
from kdns.controlplane.manifests.manifest import Manifest

PROJECT = Path(__file__).parents[3]
ZONES = sorted((PROJECT / "zones").glob("*.zone"))
STATIC_BAND = IPv4Network("10.96.0.0/24")
"""Of 10.96.0.0/16, where the allocator gives no address by itself while there are others."""


def records(path: Path) -> list[RR]:
    return list(RR.fromZone(path.read_text()))


def examples() -> list[Manifest]:
    manifests, unknown = load([PROJECT / "examples"], CATALOGUE)
    assert unknown == []
    return manifests


def rdata(rtype: str, zones: list[Path] = ZONES) -> set[tuple[str, str]]:
    return {(str(rr.rname), str(rr.rdata)) for path in zones for rr in records(path) if QTYPE[rr.rtype] == rtype}


@pytest.mark.parametrize("path", ZONES, ids=lambda path: path.stem)
def test_a_zone_file_starts_with_soa_and_ns_and_stays_below_its_origin(path: Path) -> None:
    origin = f"{path.stem}."
    zone_records = records(path)
    assert [(str(rr.rname), QTYPE[rr.rtype]) for rr in zone_records[:2]] == [(origin, "SOA"), (origin, "NS")]
    assert [
        str(rr.rname) for rr in zone_records if str(rr.rname) != origin and not str(rr.rname).endswith(f".{origin}")
    ] == []
    texts = [(str(rr.rname), rr.rtype, str(rr.rdata)) for rr in zone_records]
    assert len(texts) == len(set(texts))


def test_every_address_leads_back_and_forth() -> None:
    forward = {(ip_address(address), name) for rtype in ("A", "AAAA") for name, address in rdata(rtype)}
    backward = rdata("PTR")
    # These have no way back: a Pod's name by its address alone, and a headless Service, whose Pods have one each.
    forward = {(address, name) for address, name in forward if not name.endswith(".pod.cluster.local.")}
    parents = {(address, name.split(".", 1)[1]) for address, name in forward}
    headless = {name for _, name in forward & parents}
    missing = [
        (address, name)
        for address, name in forward
        if name not in headless and (f"{address.reverse_pointer}.", name) not in backward
    ]
    assert missing == []


def test_srv_targets_are_hosts_of_the_zone() -> None:
    hosts = {name for rtype in ("A", "AAAA") for name, _ in rdata(rtype)}
    assert {target.split()[-1] for _, target in rdata("SRV")} <= hosts


def service_addresses() -> list[tuple[str, str]]:
    found = []
    for manifest in examples():
        if manifest.kind is SERVICE and manifest.obj["spec"].get("clusterIP", "None") != "None":
            spec = manifest.obj["spec"]
            name = f"{manifest.name}.{manifest.namespace}.svc.cluster.local."
            found += [(name, address) for address in spec.get("clusterIPs", [spec["clusterIP"]])]
    return found


def test_fixed_service_addresses_are_in_the_zones_and_in_the_static_band() -> None:
    assert len(service_addresses()) >= 5
    for name, address in service_addresses():
        ip = ip_address(address)
        assert ip.version == 6 or ip in STATIC_BAND
        assert (name, address) in rdata("A" if ip.version == 4 else "AAAA")
        assert (f"{ip.reverse_pointer}.", name) in rdata("PTR")


def is_ready(pod: Manifest) -> bool:
    conditions = pod.obj.get("status", {}).get("conditions", [])
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)


def test_ready_addresses_of_pods_and_slices_have_a_way_back_and_others_have_none() -> None:
    owners = {owner for owner, _ in rdata("PTR")}
    for manifest in examples():
        if manifest.kind is POD:
            for ip in manifest.obj.get("status", {}).get("podIPs", []):
                assert (f"{ip_address(ip['ip']).reverse_pointer}." in owners) == is_ready(manifest), manifest.name
        if manifest.kind is ENDPOINT_SLICE:
            for endpoint in manifest.obj["endpoints"]:
                for address in endpoint["addresses"]:
                    assert f"{ip_address(address).reverse_pointer}." in owners
