"""`kdns up --lb-pool` as kubectl sees it: addresses come, move, are waited for, outlive a restart, as workloads do, and
are freed."""

import json
from pathlib import Path

from expecting import until_as
from kdns_process import Running, kdns_up

POOL = ("--lb-pool", "192.0.2.1-192.0.2.2,2001:db8::/125")
MANIFEST = """
apiVersion: v1
kind: Service
metadata: {name: both}
spec:
  type: LoadBalancer
  ipFamilyPolicy: RequireDualStack
  ports:
  - {name: dns, port: 53, protocol: UDP}
  - {name: dns-tcp, port: 53, protocol: TCP}
"""


def make(running: Running, name: str, *more: str) -> None:
    running.kubectl("create", "service", "loadbalancer", name, "--tcp=80:80", *more)


def external(running: Running, name: str, wanted: str) -> None:
    """Poll until EXTERNAL-IP, as a person reads it, is as wanted."""
    until_as(wanted, lambda: running.kubectl("get", "service", name, "--no-headers").split()[3], f"{name}: EXTERNAL-IP")


def told(running: Running, name: str) -> str:
    return running.kubectl("describe", "service", name).partition("Events:")[2]


def test_a_pool(tmp_path: Path) -> None:
    data = ("--data", str(tmp_path / "data"), *POOL)
    everything = ("get", "deploy,rs,pods", "-o", "jsonpath={.items[*].metadata.name} {.items[*].metadata.uid}")
    with kdns_up(tmp_path, *data) as running:
        running.kubectl("create", "deployment", "kept", "--image=i", "--replicas=3")
        running.kubectl("rollout", "status", "deployment/kept", "--timeout=60s")
        workload = running.kubectl(*everything)
        make(running, "a")
        external(running, "a", "192.0.2.1")
        assert "EnsuredLoadBalancer" in told(running, "a")
        assert "service-lb-controller" in told(running, "a")
        running.kubectl("apply", "-f", "-", stdin=MANIFEST)
        external(running, "both", "192.0.2.2,2001:db8::1")
        points = running.kubectl("get", "service", "both", "-o", "jsonpath={.status.loadBalancer.ingress}")
        assert {point["ipMode"] for point in json.loads(points)} == {"VIP"}
        make(running, "late")
        external(running, "late", "<pending>")
        assert "no IPv4 address is free in the pool" in told(running, "late")
        assert running.rdata("both.default.svc.cluster.local") != ["192.0.2.2"]
    with kdns_up(tmp_path, *data) as running:
        assert running.kubectl(*everything) == workload
        running.kubectl("scale", "deployment/kept", "--replicas=1")
        running.kubectl("rollout", "status", "deployment/kept", "--timeout=60s")
        external(running, "a", "192.0.2.1")
        external(running, "late", "<pending>")
        running.kubectl("delete", "service", "a", "--timeout=60s")
        external(running, "late", "192.0.2.1")
        running.kubectl("patch", "service", "both", "-p", '{"spec":{"type":"ClusterIP"}}')
        external(running, "both", "<none>")
        wanted = '{"spec":{"loadBalancerIP":"192.0.2.2"}}'
        running.kubectl("patch", "service", "late", "-p", wanted)
        external(running, "late", "192.0.2.2")
        left = running.kubectl("get", "service", "both", "-o", "jsonpath={.metadata.finalizers}")
        assert left == ""
