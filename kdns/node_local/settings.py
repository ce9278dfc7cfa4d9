"""Settings of a node-local DNS cache, and the words of its Corefile that are known on the node only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from kdns.errors import InputError
from kdns.netlink.addresses import NODE_LOCAL_LINK

CLUSTER_DNS: Final = "__PILLAR__CLUSTER__DNS__"
UPSTREAM_SERVERS: Final = "__PILLAR__UPSTREAM__SERVERS__"
RESOLV_CONF: Final = "/etc/resolv.conf"


@dataclass(frozen=True, slots=True)
class NodeLocal:
    """Addresses, the link that has them ("" for none of kdns's), ports, and whether rules are set.

    `is_kept` leaves interface and rules when the process ends: another one is to serve the addresses soon.
    `cluster_dns` is the address of `upstream_service`, which the cluster's DNS servers are behind, "" where it is not
    known.
    """

    addresses: tuple[str, ...]
    interface: str = NODE_LOCAL_LINK
    ports: tuple[int, ...] = (53,)
    has_rules: bool = True
    is_kept: bool = False
    cluster_dns: str = ""
    upstream_service: str = "kube-dns"

    def with_variables(self, text: str) -> str:
        """Fills in NodeLocal DNSCache's variables; InputError for one without a value."""
        if CLUSTER_DNS in text and not self.cluster_dns:
            service, variable = self.upstream_service, _variable(self.upstream_service)
            found = f"the Corefile has {CLUSTER_DNS}, and the environment no {variable}"
            raise InputError(
                f"{found}; expected the cluster IP of Service {service} there, or another --upstream-service"
            )
        return text.replace(CLUSTER_DNS, self.cluster_dns).replace(UPSTREAM_SERVERS, RESOLV_CONF)


def service_host(service: str, environ: Mapping[str, str]) -> str:
    """The cluster IP of a Service of the Pod's own namespace, from the kubelet's variables; "" without."""
    return environ.get(_variable(service), "")


def _variable(service: str) -> str:
    return f"{service.upper().replace('-', '_')}_SERVICE_HOST"
