"""The records of a Service for other programs."""

import cluster_objects
import msgspec
import pytest
from cluster_objects import endpoint_slice

from kdns.cluster.objects import Endpoint, EndpointSlice, Service
from kdns.net import packed
from kdns.plugins.sources.kubernetes.options import Options
from kdns.plugins.sources.kubernetes.transfer import service_records as transferred
from kdns.records import as_zone_file, service_records

HEADLESS = (
    b'{"metadata": {"name": "db", "namespace": "shop"}, "spec": {"clusterIP": "None", "ports": [{"port": 5432}]}}'
)
EXTERNAL = (
    b'{"metadata": {"name": "db", "namespace": "shop"}, "spec": {"type": "ExternalName", "externalName": "x.org"}}'
)
SLICE = b"""{"metadata": {"name": "db-1", "namespace": "shop", "labels": {"kubernetes.io/service-name": "db"}},
 "addressType": "IPv4", "ports": [{"name": "sql", "port": 5432, "protocol": "TCP"}],
 "endpoints": [{"addresses": ["10.244.1.5"], "hostname": "db-0"},
               {"addresses": ["10.244.1.6"], "hostname": "db-1", "conditions": {"ready": false}}]}"""


@pytest.mark.parametrize(
    ("service", "slices", "lines"),
    [
        (HEADLESS, [], []),
        (
            HEADLESS,
            [SLICE],
            [
                "db-0.db.shop.svc.k8s.test. 9 IN A 10.244.1.5",
                "db-0.db.shop.svc.k8s.test. 9 IN SRV 0 100 5432 db-0.db.shop.svc.k8s.test.",
                "_sql._tcp.db.shop.svc.k8s.test. 9 IN SRV 0 100 5432 db-0.db.shop.svc.k8s.test.",
                "db.shop.svc.k8s.test. 9 IN A 10.244.1.5",
                "db.shop.svc.k8s.test. 9 IN SRV 0 100 5432 db-0.db.shop.svc.k8s.test.",
            ],
        ),
        (EXTERNAL, [], ["db.shop.svc.k8s.test. 9 IN CNAME x.org."]),
    ],
)
def test_records(service: bytes, slices: list[bytes], lines: list[str]) -> None:
    decoded = [msgspec.json.decode(each, type=EndpointSlice) for each in slices]
    found = service_records(msgspec.json.decode(service, type=Service), decoded, domain="K8S.test.", ttl_s=9)
    assert sorted(as_zone_file(found).splitlines()) == sorted(lines)


def test_names_by_topology_zone_are_transferred_too() -> None:
    ends = Endpoint(("10.244.1.5",), zone="a"), Endpoint(("10.244.1.6",), zone="b")
    one = endpoint_slice("db-1", "db", *ends)
    found = transferred(cluster_objects.service("db", "None"), (one,), "k8s.test.", Options(zonal=True))
    zonal = {rrset.owner: rrset.rdata for rrset in found if rrset.owner.endswith("._zone.db.shop.svc.k8s.test.")}
    a, b = packed("10.244.1.5"), packed("10.244.1.6")
    by_name = {"a.pin": (a,), "a.prefer": (a,), "b.pin": (b,), "b.prefer": (b,)}
    assert zonal == {f"{name}._zone.db.shop.svc.k8s.test.": rdata for name, rdata in by_name.items()}
