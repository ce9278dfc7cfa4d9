"""Rules in the shape of kube-proxy's, in nftables and iptables: chains for every Service and every endpoint.

Names, marks and order are such as a packet meets them; what these Services have no use for is there but empty.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256

from _vip_services import AFFINITY_S, ENDPOINTS, MARK, PORT, RANGES, TARGET_PORT, Service, Setting

from kdns.proxy.nftables.objects import NFT_FAMILY


def kube_proxy_nftables(given: Setting) -> Iterator[str]:
    """The shape of kube-proxy's mode nftables: a map of all Services, a chain for each and for each endpoint."""
    ip, address = NFT_FAMILY[given.family], "ipv4_addr" if given.family == "IPv4" else "ipv6_addr"
    pods, table = RANGES[given.family].pods, f"{ip} kube-proxy"
    front, number = f"{address} . inet_proto . inet_service", "inet_proto . inet_service"
    yield f"""
table {table} {{
    map service-ips {{ type {front} : verdict; }}
    map service-nodeports {{ type {number} : verdict; }}
    map no-endpoint-services {{ type {front} : verdict; }}
    map no-endpoint-nodeports {{ type {number} : verdict; }}
    map firewall-ips {{ type {front} : verdict; }}
    set cluster-ips {{ type {address}; }}
    set nodeport-ips {{ type {address}; }}
    chain mark-for-masquerade {{ mark set mark or {MARK:#x}; }}
    chain masquerading {{ mark and {MARK:#x} == 0 return; mark set mark xor {MARK:#x}; masquerade fully-random; }}
    chain cluster-ips-check {{
        {ip} daddr @cluster-ips reject
        {ip} daddr {RANGES[given.family].services} drop
    }}
    chain firewall-check {{ {ip} daddr . meta l4proto . th dport vmap @firewall-ips; }}
    chain service-endpoints-check {{ {ip} daddr . meta l4proto . th dport vmap @no-endpoint-services; }}
    chain nodeport-endpoints-check {{ {ip} daddr @nodeport-ips meta l4proto . th dport vmap @no-endpoint-nodeports; }}
    chain services {{
        {ip} daddr . meta l4proto . th dport vmap @service-ips
        {ip} daddr @nodeport-ips meta l4proto . th dport vmap @service-nodeports
    }}
    chain filter-prerouting {{ type filter hook prerouting priority -110; ct state new jump firewall-check; }}
    chain filter-input {{
        type filter hook input priority 0
        ct state new jump nodeport-endpoints-check
        ct state new jump service-endpoints-check
    }}
    chain filter-forward {{
        type filter hook forward priority 0
        ct state new jump service-endpoints-check
        ct state new jump cluster-ips-check
    }}
    chain nat-prerouting {{ type nat hook prerouting priority -100; jump services; }}
    chain nat-postrouting {{ type nat hook postrouting priority 100; jump masquerading; }}
}}"""
    fronts = []
    for service in given.services:
        for protocol in service.protocols:
            end = f"{_digest(service.name, protocol)}-bench/{service.name}/{protocol}/"
            places = [
                (f"{_digest(end, endpoint)}-{end}{endpoint.replace(':', '.')}", endpoint)
                for endpoint in service.endpoints
            ]
            for name, each in places:
                if service.affinity:
                    options = f"flags dynamic,timeout; timeout {AFFINITY_S}s"
                    yield f"add set {table} affinity-{name} {{ type {address}; {options}; }}"
                yield f"add chain {table} endpoint-{name}"
                yield f"add rule {table} endpoint-{name} {ip} saddr {each} jump mark-for-masquerade"
                if service.affinity:
                    yield f"add rule {table} endpoint-{name} update @affinity-{name} {{ {ip} saddr }}"
                to = f"{each if ip == 'ip' else f'[{each}]'}:{TARGET_PORT}"
                yield f"add rule {table} endpoint-{name} meta l4proto {protocol} dnat to {to}"
            chain = f"{table} service-{end}"
            yield f"add chain {chain}"
            masqueraded = f"{ip} daddr {service.vip} {protocol} dport {PORT} {ip} saddr != {pods}"
            yield f"add rule {chain} {masqueraded} jump mark-for-masquerade"
            if service.affinity:
                yield from (f"add rule {chain} {ip} saddr @affinity-{each} goto endpoint-{each}" for each, _ in places)
            drawn = ", ".join(f"{number} : goto endpoint-{name}" for number, (name, _) in enumerate(places))
            yield f"add rule {chain} numgen random mod {ENDPOINTS} vmap {{ {drawn} }}"
            fronts.append(f"{service.vip} . {protocol} . {PORT} : goto service-{end}")
    yield f"add element {table} cluster-ips {{ {', '.join(service.vip for service in given.services)} }}"
    yield f"add element {table} service-ips {{ {', '.join(fronts)} }}"


def kube_proxy_iptables(given: Setting, changed: Service | None = None) -> Iterator[str]:
    """The shape of kube-proxy's mode iptables: one chain with a rule for each Service, gone through from the top.

    With `changed`, a partial sync: of the chains of Services only that one's are written, of the others all.
    """
    pods = RANGES[given.family].pods
    yield """*filter
:KUBE-SERVICES - [0:0]
:KUBE-FORWARD - [0:0]
:KUBE-PROXY-FIREWALL - [0:0]"""
    if not changed:
        yield """-A FORWARD -m conntrack --ctstate NEW -j KUBE-PROXY-FIREWALL
-A FORWARD -j KUBE-FORWARD
-A FORWARD -m conntrack --ctstate NEW -j KUBE-SERVICES"""
    yield f"""-A KUBE-FORWARD -m conntrack --ctstate INVALID -j DROP
-A KUBE-FORWARD -m mark --mark {MARK:#x}/{MARK:#x} -j ACCEPT
-A KUBE-FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
COMMIT
*nat
:KUBE-SERVICES - [0:0]
:KUBE-POSTROUTING - [0:0]
:KUBE-MARK-MASQ - [0:0]"""
    if not changed:
        yield """-A PREROUTING -j KUBE-SERVICES
-A OUTPUT -j KUBE-SERVICES
-A POSTROUTING -j KUBE-POSTROUTING"""
    yield f"""-A KUBE-MARK-MASQ -j MARK --or-mark {MARK:#x}
-A KUBE-POSTROUTING -m mark ! --mark {MARK:#x}/{MARK:#x} -j RETURN
-A KUBE-POSTROUTING -j MARK --xor-mark {MARK:#x}
-A KUBE-POSTROUTING -j MASQUERADE --random-fully"""
    for service in given.services:
        for protocol in service.protocols:
            chain = f"KUBE-SVC-{_digest(service.name, protocol)}"
            matched = f"-d {service.vip} -p {protocol} -m {protocol} --dport {PORT}"
            said = f'-m comment --comment "bench/{service.name}:{protocol} cluster IP"'
            if changed in {None, service}:
                yield from _service_chains(service, protocol, chain, f"{said} ! -s {pods} {matched}")
            yield f"-A KUBE-SERVICES {said} {matched} -j {chain}"
    yield "COMMIT"


def _service_chains(service: Service, protocol: str, chain: str, masqueraded: str) -> Iterator[str]:
    said = f'-m comment --comment "bench/{service.name}:{protocol}"'
    places = [(f"KUBE-SEP-{_digest(service.name, protocol, endpoint)}", endpoint) for endpoint in service.endpoints]
    yield "\n".join(f":{name} - [0:0]" for name in (chain, *(name for name, _ in places)))
    yield f"-A {chain} {masqueraded} -j KUBE-MARK-MASQ"
    recent = f"-m recent --rcheck --seconds {AFFINITY_S} --reap"
    if service.affinity:
        yield from (f"-A {chain} {said} {recent} --name {name} -j {name}" for name, _ in places)
    for number, (name, each) in enumerate(places):
        left = ENDPOINTS - number
        odds = f"-m statistic --mode random --probability {1 / left:.10f}" if left > 1 else ""
        noted = f"-m recent --name {name} --set" if service.affinity else ""
        to = f"{each if ':' not in each else f'[{each}]'}:{TARGET_PORT}"
        yield f"-A {chain} {said} {odds} -j {name}"
        yield f"-A {name} {said} -s {each} -j KUBE-MARK-MASQ"
        yield f"-A {name} {said} {noted} -p {protocol} -m {protocol} -j DNAT --to-destination {to}"


def _digest(*parts: str) -> str:
    return sha256("/".join(parts).encode()).hexdigest()[:16].upper()
