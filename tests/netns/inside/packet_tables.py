"""What must happen to packets, as tables: every cell of the verdict table first, then one table for each promise.

small_cluster.py explains the words. The tables hold in both families and all protocols, in the plan, in the written
rules and in the kernel.
"""

from collections.abc import Iterator
from dataclasses import replace
from ipaddress import ip_network
from itertools import product
from typing import Any, Final

from small_cluster import CONFIG, NODE_VIEW, PROTOCOLS, Case, Row, both, case, endpoints, service
from world import NODE

from kdns.proxy.plan.config import LocalPods, ProtectedPort

VERDICTS: Final = """
# to        policy   endpoints  pod1      pod2      remote      outside     node
  cluster   Cluster  none       refused   refused   refused     refused     refused
  cluster   Cluster  both       p1,r1     p1,r1     p1,r1*      p1,r1*      p1,r1*
  cluster   Cluster  there      r1,r2     r1,r2     r1,r2*      r1,r2*      r1,r2*
  cluster   Local    none       refused   refused   refused     refused     refused
  cluster   Local    both       p1        p1        p1*         p1*         p1*
  cluster   Local    there      dropped   dropped   dropped     dropped     dropped
  external  Cluster  none       refused   refused   refused     refused     refused
  external  Cluster  both       p1,r1*    p1,r1*    p1,r1*      p1,r1*      p1,r1*
  external  Cluster  there      r1,r2*    r1,r2*    r1,r2*      r1,r2*      r1,r2*
  external  Local    none       refused   refused   refused     refused     refused
  external  Local    both       p1,r1/p1  p1,r1/p1  p1          p1          p1,r1*/p1*/p1
  external  Local    there      r1,r2/r1,r2/nobody  r1,r2/r1,r2/nobody  dropped  dropped  r1,r2*/r1,r2*/nobody
"""
"""service-proxy.md §1, "Verdicts". A star: masqueraded. An endpoint that reaches itself always is.

Behind a slash: in modes where a front has one list of endpoints for all clients. Behind a second slash: in modes that
treat clients alike.
"""
ENDPOINTS_OF: Final = {"none": (), "both": ("p1", "r1"), "there": ("r1", "r2")}
POLICIES: Final = ("Cluster", "Local")
SERVICES: Final = tuple(enumerate(product(POLICIES, POLICIES, ENDPOINTS_OF), 1))
"""Number → internal policy, external policy, endpoints: every mixture of them on one Service."""


def verdict_rows() -> Iterator[Row]:
    """Each cell of VERDICTS at every front that it speaks of, whatever the Service's other policy."""
    _, header, *lines = (line.split() for line in VERDICTS.splitlines())
    for to, policy, ends, *cells in lines:
        for number, (internal, external, have) in SERVICES:
            if have != ends or policy != (internal if to == "cluster" else external):
                continue
            targets = [f"vip{number}"] if to == "cluster" else [f"ext{number}", f"lb{number}", f"node:{30000 + number}"]
            for client, cell in zip(header[4:], cells, strict=True):
                wanted, *others = cell.replace("*", " masq").split("/")
                for field_name, other in zip(("has_one_list", "treats_clients_alike"), others, strict=False):
                    wanted = f"{other} if {field_name} else {wanted}"
                yield from (Row(client, target, wanted) for target in targets)


VERDICT_CASE: Final = Case(
    "verdicts",
    tuple(
        service(number, endpoints(number, *ENDPOINTS_OF[ends]), internal=internal, external=external)
        for number, (internal, external, ends) in SERVICES
    ),
    tuple(verdict_rows()),
)


def at(port: int) -> list[dict[str, Any]]:
    return [{"name": protocol.lower(), "protocol": protocol, "port": port} for protocol in PROTOCOLS]


HERE, BOTH = endpoints(1, "p1", "p2"), endpoints(1, "p1", "r1")
WHO: Final = "pod1,pod2,remote,outside,node"

PROMISES: Final = (
    case(
        "hairpin: an endpoint reaches itself through every address, and sees the node",
        [service(1, endpoints(1, "p1"), external="Local")],
        """
        pod1                     vip1        p1 masq
        pod1                     ext1        p1 if treats_clients_alike else p1 masq
        pod1                     lb1         p1 if treats_clients_alike else p1 masq
        pod1                     node:30001  p1 if treats_clients_alike else p1 masq
        pod2                     vip1        p1
        pod2                     ext1        p1
        """,
    ),
    case(
        "source ranges guard load balancer addresses only",
        [service(1, BOTH, loadBalancerSourceRanges=["203.0.113.0/24", "2001:db8:2::101/128", "10.1.0.2/32"])],
        """
        outside2                 lb1         p1,r1 masq
        outside,remote,node      lb1         dropped if restricts_sources else p1,r1 masq
        outside                  ext1        p1,r1 masq
        outside                  node:30001  p1,r1 masq
        outside                  vip1        p1,r1 masq
        """,
    ),
    case(
        "source ranges that hold the node let it in, also when the load balancer's address is its own",
        [
            service(1, BOTH, loadBalancerSourceRanges=["192.0.2.0/29", "2001:db8:2::/125"]),
            service(
                2,
                endpoints(2, "p1", "r1"),
                loadBalancerSourceRanges=["192.0.2.0/29", "2001:db8:2::/125"],
                ingress=[{"ip": "192.0.2.9"}, {"ip": "2001:db8:2::9"}],
            ),
        ],
        """
        node                     lb1         p1,r1 masq
        outside,pod1             lb1         dropped if restricts_sources else p1,r1 masq
        node                     node2       p1,r1 masq
        node2                    node2       p1,r1 masq
        outside,pod1             node2       dropped if restricts_sources else p1,r1 masq
        """,
    ),
    case(
        "source ranges with local policy: inside the ranges the policy decides",
        [
            service(1, BOTH, external="Local", loadBalancerSourceRanges=["203.0.113.5/32", "2001:db8:2::101/128"]),
            service(2, loadBalancerSourceRanges=["203.0.113.5/32", "2001:db8:2::101/128"]),
            service(3, endpoints(3, "r1"), loadBalancerSourceRanges=["0.0.0.0/0", "::/0", "203.0.113.5/32"]),
            service(4, endpoints(4, "r1"), loadBalancerSourceRanges=["203.0.113.0/24", "203.0.113.5/32", "2001::/16"]),
        ],
        """
        outside2                 lb1         p1
        outside,pod1,node        lb1         dropped if restricts_sources else p1
        outside2                 lb2         refused
        outside                  lb2         dropped if guards_without_endpoints else refused
        outside,pod1             lb3         r1 masq
        outside2                 lb4         r1 masq
        """,
    ),
    case(
        "ipMode Proxy leaves an address to its load balancer",
        [
            service(
                1, BOTH, ingress=[{"ip": "198.51.101.1", "ipMode": "Proxy"}, {"ip": "2001:db8:6::1", "ipMode": "Proxy"}]
            ),
            service(
                2,
                endpoints(2, "r1"),
                ingress=[{"ip": "198.51.101.2", "ipMode": "VIP"}, {"ip": "2001:db8:6::2", "ipMode": "VIP"}],
            ),
            service(3, endpoints(3, "r1"), ingress=[{"hostname": "lb.example"}]),
        ],
        """
        outside,pod1,node        lb1         nobody
        outside,pod1,node        lb2         r1 masq
        outside                  lb3         nobody
        outside                  vip3        r1 masq
        """,
    ),
    case(
        "an external IP that is an address of the node",
        [
            service(1, BOTH, externalIPs=["192.0.2.9", "2001:db8:2::9"]),
            service(2, externalIPs=["192.0.2.1", "2001:db8:2::1"]),
        ],
        f"""
        {WHO}                    node2       p1,r1 masq
        {WHO}                    node        refused
        {WHO}                    node:81     nobody
        {WHO}                    node2:81    nobody
        """,
    ),
    case(
        "node ports at the primary addresses",
        [service(1, BOTH)],
        f"""
        {WHO}                    node:30001  p1,r1 masq
        {WHO}                    node2:30001 nobody if restricts_node_ports else p1,r1 masq
        """,
    ),
    case(
        "node ports at all addresses",
        [service(1, BOTH), service(2)],
        f"""
        {WHO}                    node:30001  p1,r1 masq
        {WHO}                    node2:30001 p1,r1 masq
        {WHO}                    node2:30002 refused
        pod1,outside             ext1:30001  refused if owns_addresses else nobody
        """,
        node_port_addresses=(),
    ),
    case(
        "node ports at the addresses of networks",
        [service(1, BOTH, external="Local"), service(2)],
        """
        outside                  node2:30001 p1
        pod1                     node2:30001 p1 if has_one_list else p1,r1
        node2                    node2:30001 p1 if treats_clients_alike else p1 masq if has_one_list else p1,r1 masq
        outside                  node2:30002 refused
        outside,pod1,node        node:30001  nobody if restricts_node_ports else p1
        outside,pod1,node        node:30002  nobody
        """,
        node_port_addresses=(ip_network("192.0.2.8/29"), ip_network("2001:db8:2::8/125")),
    ),
    case(
        "masqueradeAll masquerades everybody at cluster IPs",
        [service(1, BOTH), service(2, endpoints(2, "p1", "r1"), external="Local")],
        f"""
        {WHO}                    vip1        p1,r1 masq
        {WHO}                    ext1        p1,r1 masq
        pod1                     ext2        p1 if has_one_list else p1,r1
        outside                  ext2        p1
        """,
        masquerade_all=True,
    ),
    case(
        "without a detector nobody is a local Pod, and cluster IPs masquerade nobody",
        [service(1, BOTH), service(2, endpoints(2, "p1", "r1"), external="Local")],
        """
        pod1,pod2,outside,node   vip1        p1,r1
        pod1                     ext1        p1,r1 masq
        pod1,pod2                ext2        p1
        node                     ext2        p1 if treats_clients_alike else p1 masq if has_one_list else p1,r1 masq
        """,
        local_pods=None,
    ),
    case(
        "an endpoint in the node's own network sees clients as they are: packets do not leave for it",
        [service(1, endpoints(1, "h1")), service(2, endpoints(2, "h1", "r1"), internal="Local", external="Local")],
        """
        pod1,remote,outside      vip1        h1
        pod1,remote,outside      ext1        h1 masq if treats_clients_alike else h1
        outside                  node:30001  h1 masq if treats_clients_alike else h1
        node,node2               vip1        h1 masq
        node                     node:30001  h1 masq
        pod1,outside             vip2        h1
        outside                  lb2         h1
        """,
    ),
    case(
        "local Pods come in through a bridge",
        [service(1, BOTH), service(2, endpoints(2, "p2", "r1"), external="Local")],
        """
        pod2                     vip1        p1,r1
        pod1,remote,outside,node vip1        p1,r1 masq
        pod2                     lb2         p2 if has_one_list else p2,r1
        pod1,outside             lb2         p2
        node                     lb2         p2 if treats_clients_alike else p2 masq if has_one_list else p2,r1 masq
        """,
        local_pods=LocalPods(bridge="pods"),
    ),
    case(
        "local Pods come in through interfaces with a prefix",
        [service(1, BOTH), service(2, endpoints(2, "p2", "r1"), external="Local")],
        """
        pod1,pod2                vip1        p1,r1
        remote,outside,node      vip1        p1,r1 masq
        pod1,pod2                lb2         p2 if has_one_list else p2,r1
        remote,outside           lb2         p2
        """,
        local_pods=LocalPods(interface_prefix="po"),
    ),
    case(
        "a port that no Service has, and addresses that are nobody's",
        [service(1, BOTH)],
        f"""
        {WHO}                    vip1:81     refused if rejects_undefined_ports else nobody
        {WHO}                    vip77       dropped if drops_unallocated else nobody
        {WHO}                    vip77:53    dropped if drops_unallocated else nobody
        pod1,outside             ext1:81     refused if owns_addresses else nobody
        """,
    ),
    case(
        "addresses that are nobody's, where the service ranges are not known",
        [service(1, BOTH)],
        """
        pod1,outside             vip1:81     refused if rejects_undefined_ports else nobody
        pod1,outside             vip77       nobody
        """,
        service_cidrs=(),
    ),
    case(
        "while no endpoint is ready, those that serve while they terminate stand in",
        [
            service(1, endpoints(1, "p1 terminating", "r1 terminating")),
            service(2, endpoints(2, "p1 terminating", "r1"), internal="Local", external="Local"),
            service(3, endpoints(3, "p1 terminating", "r1")),
            service(4, endpoints(4, "p1 gone", "r1 unready")),
            service(5, endpoints(5, "p1 terminating", "p2"), internal="Local"),
        ],
        """
        pod2                     vip1        p1,r1
        pod2                     vip2        p1
        outside                  ext2        p1
        pod2                     ext2        p1 if has_one_list else r1
        pod2                     vip3        r1
        pod2,outside             vip4        refused
        outside                  lb4         refused
        pod1                     vip5        p2
        """,
    ),
    case(
        "hints keep traffic in the zone or on the node, but not with a local policy",
        [
            service(1, endpoints(1, "p1 zone=z1", "r1 zone=z2", "r2 zone=z1")),
            service(2, endpoints(2, "p1 zone=z1", "r1")),
            service(3, endpoints(3, "p1 zone=z2", "r1 zone=z2")),
            service(4, endpoints(4, "p1 zone=z1 node=here", "r1 zone=z1 node=there")),
            service(5, endpoints(5, "p1 zone=z2", "r1 zone=z1"), internal="Local", external="Local"),
        ],
        """
        pod2                     vip1        p1,r2
        outside                  ext1        p1,r2 masq
        pod2                     vip2        p1,r1
        pod2                     vip3        p1,r1
        pod2                     vip4        p1
        pod2                     vip5        p1
        outside                  lb5         p1
        pod2                     lb5         p1 if has_one_list else r1
        """,
    ),
    case(
        "without the feature gate, hints for nodes do not count",
        [service(1, endpoints(1, "p1 zone=z1 node=here", "r1 zone=z1 node=there"))],
        "pod2 vip1 p1,r1",
        node_hints=False,
    ),
    case(
        "an external IP takes nobody's cluster IP, and no load balancer's address",
        [
            service(1, endpoints(1, "p1"), externalIPs=[*both("vip", 2), *both("lb", 2), *both("lb", 1)]),
            service(2, endpoints(2, "r1"), loadBalancerSourceRanges=["203.0.113.0/24", "2001:db8:2::101/128"]),
        ],
        """
        pod2                     vip2        r1
        outside2                 lb2         r1 masq
        outside                  lb2         dropped if restricts_sources else r1 masq
        outside                  lb1         p1 masq
        """,
    ),
    case(
        "an address that is external and the load balancer's is guarded",
        [
            service(
                1,
                endpoints(1, "r1"),
                externalIPs=both("lb", 1),
                loadBalancerSourceRanges=["203.0.113.0/24", "2001:db8:2::101/128"],
            )
        ],
        """
        outside2                 lb1         r1 masq
        outside,pod1             lb1         dropped if restricts_sources else r1 masq
        """,
    ),
    case(
        "what belongs to the node is not captured: a protected port, and another's node port",
        [
            service(1, endpoints(1, "r1")),
            *(
                service(number, endpoints(number, "p1"), externalIPs=[NODE[0], NODE[2]], ports=at(port))
                for number, port in ((2, 80), (3, 81), (4, 30001))
            ),
        ],
        """
        outside,pod1             node:81     nobody
        outside                  node:30001  r1 masq
        outside                  node:80     p1 masq
        """,
        protected_ports=(ProtectedPort("protected", 81),),
    ),
    case(
        "two Services with one external address and port: the older one has it",
        [
            service(
                2, endpoints(2, "r1"), externalIPs=["198.51.100.1", "2001:db8:5::1"], created="2026-01-01T00:00:00Z"
            ),
            service(1, endpoints(1, "p1"), created="2026-01-01T00:00:01Z"),
        ],
        """
        outside                  ext1        r1 masq
        outside                  vip1        p1 masq
        outside                  lb1         p1 masq
        """,
    ),
    case(
        "two Services of one age with one external address and port: the first by name has it",
        [
            service(2, endpoints(2, "r1"), externalIPs=["198.51.100.1", "2001:db8:5::1"]),
            service(1, endpoints(1, "p1")),
        ],
        """
        outside                  ext1        p1 masq
        outside                  vip2        r1 masq
        outside                  lb2         r1 masq
        """,
    ),
)

ALONE: Final = Case(
    "a node that is in no zone and has no name",
    (service(1, endpoints(1, "p1 zone=z1", "r1 zone=z2"), internal="Local"), service(2, endpoints(2, "p1 zone=z1"))),
    (Row("pod2", "vip1", "dropped"), Row("pod2", "vip2", "p1")),
    CONFIG,
    replace(NODE_VIEW, name="", zone=""),
)
ONLY_ONE_ADDRESS: Final = Case(
    "a node whose object has no address of a family has no node ports there",
    (service(1, endpoints(1, "r1")),),
    (Row("outside", "node:30001", "nobody if restricts_node_ports else r1 masq"), Row("outside", "vip1", "r1 masq")),
    CONFIG,
    replace(NODE_VIEW, primary=()),
)
AFFINITY: Final = case(
    "with affinity, the same ends",
    [
        service(1, BOTH, sessionAffinity="ClientIP"),
        service(2, endpoints(2, "p1", "r1"), sessionAffinity="ClientIP", internal="Local", external="Local"),
    ],
    """
    pod1                     vip1        p1,r1
    outside                  ext1        p1,r1 masq
    outside                  node:30001  p1,r1 masq
    pod2                     vip2        p1
    outside                  lb2         p1
    pod2                     lb2         p1 if has_one_list else p1,r1
    """,
)
"""Here a client keeps the first end that it gets, so that the kernel shows but one of them."""
CASES: Final = (VERDICT_CASE, *PROMISES, ALONE, ONLY_ONE_ADDRESS)
