"""The causes of an answer about the cluster: what stands in its objects, and what stands nowhere."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from kdns.cluster.objects import Key, Service
from kdns.cluster.packed import EndpointAddress, addresses_of, ready_addresses
from kdns.cluster.readiness import SHOWN, Cause, and_, count, endpoint_text, nothing_ready
from kdns.cluster.state import State
from kdns.dns.names import Labels, is_below, labels_of, reversed_address, text_of
from kdns.dns.types import AAAA, ANY, CNAME, SRV, A, address_type, type_name
from kdns.net import Family, family_of_text, parse_address, unpacked
from kdns.plugins.kubernetes.dashed import undashed
from kdns.plugins.kubernetes.options import Options, PodMode
from kdns.plugins.kubernetes.service import endpoint_label, port_labels
from kdns.plugins.kubernetes.zone import KubernetesZone
from kdns.spelling import closest, listed

FAMILIES: Final[Mapping[int, Family]] = {A: "IPv4", AAAA: "IPv6"}
COMPARED: Final = 100
"""The most names that a misspelt one is compared with for a query: each takes some 20 µs."""
LOOKED_AT: Final = 1000
"""The most endpoints of a Service that are looked at for a query: each takes some 3 µs."""
MAX_ALIASES: Final = 12
"""ExternalName Services that are followed from one to the next."""


@dataclass(frozen=True, slots=True)
class ClusterCauses:
    """The causes of answers for the names of one zone at a Unix time.

    `is_brief`: as many as are found in a few milliseconds.
    """

    state: State
    options: Options
    zone: KubernetesZone
    is_brief: bool = False
    now_s: float = 0.0

    def of(self, labels: Labels, qtype: int) -> list[Cause]:
        """Returns the causes of the answer for a folded name of the zone, the nearest first."""
        if self.zone.is_reverse:
            return [*self._of_address(labels)]
        relative = [label.decode("latin-1") for label in labels[: len(labels) - self.zone.depth]][::-1]
        match relative:
            case []:
                return [Cause(f"{self.zone.name} is the zone of the cluster itself")]
            case ["svc" | "pod"]:
                return [Cause("the names of Services and Pods are below a namespace, as in NAME.NAMESPACE.svc")]
            case ["dns", *_] | ["dns-version"]:
                return [Cause("this name belongs to the zone itself, not to an object")]
            case ["svc", namespace]:
                return [*self._of_namespace(namespace)]
            case ["svc", namespace, name, *below]:
                return [*self._of_service((namespace, name), below[::-1], qtype)]
            case ["pod", namespace, *front]:
                return [*self._of_pod(namespace, front[::-1])]
        return [*self._without_branch(relative)]

    def _closest(self, word: str, words: Iterable[str]) -> str:
        return closest(word, islice(words, COMPARED if self.is_brief else None))

    # Services

    def _of_namespace(self, namespace: str) -> Iterator[Cause]:
        hidden = [*self._hidden(namespace)]
        yield from hidden or [Cause(f'Namespace "{namespace}" exists; it has no address, only the Services in it have')]

    def _hidden(self, namespace: str) -> Iterator[Cause]:
        """Yields why no name of a namespace exists."""
        known = [name for _, name in self.state.namespaces]
        if namespace not in known:
            near = self._closest(namespace, known)
            yield Cause(
                f'there is no Namespace "{namespace}"' + (f'; there is "{near}"' if near else ""),
                "kubectl get namespaces",
            )
        elif self.options.namespaces is not None and namespace not in self.options.namespaces:
            shown = " ".join(sorted(self.options.namespaces))
            yield Cause(f'the Corefile hides Namespace "{namespace}": the option `namespaces {shown}` does not name it')

    def _of_service(self, key: Key, below: Sequence[str], qtype: int) -> Iterator[Cause]:
        namespace, _ = key
        if hidden := [*self._hidden(namespace)]:
            yield from hidden
            yield from self._elsewhere(key)
            return
        service = self.state.services.get(key)
        if service is None:
            yield from self._no_service(key, below)
        elif service.is_external_name:
            yield from self._alias(service)
        elif below:
            yield from self._below(service, below, qtype)
        elif service.is_headless:
            yield from self._too_many(service) or self._headless(service, qtype)
        else:
            yield from self._virtual(service, qtype)

    def _too_many(self, service: Service) -> tuple[Cause, ...]:
        """Returns what is said in place of a look at the endpoints, nothing where there is time for it."""
        number = sum(len(one.endpoints or ()) for one in self.state.slices_of(service.key))
        if not self.is_brief or number <= LOOKED_AT:
            return ()
        return (Cause(f"Service {'/'.join(service.key)} has {number} endpoints: `kdns explain` looks at them"),)

    def _no_service(self, key: Key, below: Sequence[str]) -> Iterator[Cause]:
        namespace, name = key
        if below:
            asked = ".".join((*below, name))
            yield Cause(
                f'a search list made this name of {asked}, and there is no Service "{name}" in "{namespace}"; '
                f"with a dot at its end, `{asked}.` is asked as it is"
            )
            return
        if (deleted_s := self.state.deleted.get(key)) is not None and self.now_s:
            yield Cause(
                f"Service {namespace}/{name} was deleted {max(self.now_s - deleted_s, 0):.0f} s ago; "
                f"clients may hold its addresses for {self.options.ttl_s} s"
            )
        near = self._closest(name, (other for space, other in self.state.services if space == namespace))
        yield Cause(
            f'there is no Service "{name}" in "{namespace}"' + (f'; there is "{near}"' if near else ""),
            f"kubectl get services -n {namespace}",
        )
        yield from self._elsewhere(key)

    def _elsewhere(self, key: Key) -> Iterator[Cause]:
        """Yields where a Service of this name is, if it is in other namespaces."""
        namespace, name = key
        spaces = (space for _, space in self.state.namespaces if space != namespace)
        others = sorted(space for space in spaces if (space, name) in self.state.services)
        if others:
            names = listed((f"{name}.{space}.svc.{self.zone.name.rstrip('.')}" for space in others), SHOWN)
            yield Cause(f"{and_(others[:SHOWN])} {'has' if len(others) == 1 else 'have'} one: {names}")

    def _alias(self, service: Service) -> Iterator[Cause]:
        namespace, name = service.key
        target = service.spec.external_name.rstrip(".")
        yield Cause(f"Service {namespace}/{name} is an ExternalName, another name for {target}")
        if parse_address(target) is not None:
            yield Cause(
                f"externalName {target} is an address, and a CNAME leads to names only; "
                "use a Service without selector and an EndpointSlice"
            )
            return
        circle = [service.key]
        while len(circle) <= MAX_ALIASES:
            key = self._service_named(self.state.services[circle[-1]].spec.external_name)
            if key is None:
                return
            if key in circle:
                names = " → ".join(name for _, name in (*circle, key))
                yield Cause(f"{names}: a loop of {len(circle)} ExternalName Services")
                return
            following = self.state.services.get(key)
            if following is None or not following.is_external_name:
                yield from self._of_service(key, (), A)
                return
            circle.append(key)

    def _service_named(self, name: str) -> Key | None:
        """Returns the key of the Service whose name this is in the zone, whether there is one or not."""
        labels = tuple(label.lower() for label in labels_of(name))
        match [label.decode("latin-1") for label in labels[: len(labels) - self.zone.depth]]:
            case [service, namespace, "svc"] if is_below(labels, self.zone.labels):
                return namespace, service
        return None

    def _virtual(self, service: Service, qtype: int) -> Iterator[Cause]:
        """Yields why a Service with cluster IPs has this answer, and what is behind it."""
        name = "/".join(service.key)
        if not service.virtual_ips:
            yield Cause(f"Service {name} has no cluster IP yet", f"kubectl describe service -n {' '.join(service.key)}")
            return
        if qtype in FAMILIES and FAMILIES[qtype] not in map(family_of_text, service.virtual_ips):
            yield Cause(
                f"Service {name} has no {FAMILIES[qtype]} cluster IP, only {', '.join(service.virtual_ips)}; "
                "that is no error: its other address is used"
            )
        elif qtype not in {A, AAAA, SRV, ANY}:
            yield Cause(f"Service {name} exists, and has no records of type {type_name(qtype)}")
        else:
            yield Cause(f"Service {name} has cluster IP {', '.join(service.virtual_ips)}")
        if not any(True for one in self.state.slices_of(service.key) for _ in ready_addresses(one)):
            cause = nothing_ready(self.state, service)
            yield cause._replace(text=f"nothing is behind it: {cause.text}")

    def _headless(self, service: Service, qtype: int) -> Iterator[Cause]:
        name, slices = "/".join(service.key), self.state.slices_of(service.key)
        ready = [each for one in slices for each in ready_addresses(one)]
        if not self.options.endpoints:
            yield Cause("the Corefile's option `noendpoints` leaves headless Services without names")
        elif not ready and not any(one.address_type == "FQDN" for one in slices):
            cause = nothing_ready(self.state, service)
            yield cause._replace(text=f"no endpoint of headless Service {name} is ready: {cause.text}")
        elif qtype in FAMILIES and qtype not in {address_type(each.address) for each in ready}:
            yield Cause(
                f"the {len(ready)} ready endpoints of headless Service {name} have no {FAMILIES[qtype]} address"
            )
        elif qtype not in {A, AAAA, SRV, ANY, CNAME}:
            yield Cause(f"headless Service {name} exists, and has no records of type {type_name(qtype)}")
        else:
            yield Cause(f"headless Service {name} has {count(len(ready), 'ready endpoint')}: {self._ends(ready)}")

    def _ends(self, ready: Sequence[EndpointAddress]) -> str:
        return listed((f"{each.pod} {unpacked(each.address)}".lstrip() for each in ready), SHOWN)

    # Below a Service

    def _below(self, service: Service, below: Sequence[str], qtype: int) -> Iterator[Cause]:
        namespace, name = service.key
        match below:
            case [port, protocol] if port.startswith("_") and protocol.startswith("_"):
                yield from self._port(service, port, protocol, qtype)
            case [protocol] if protocol.startswith("_"):
                yield Cause(f"the ports of Service {namespace}/{name} are below this name, as in _PORT.{protocol}")
            case [label]:
                yield from self._too_many(service) or self._endpoint(service, label)
            case _:
                yield Cause(f"nothing is {count(len(below), 'label')} below Service {namespace}/{name}")

    def _port(self, service: Service, port: str, protocol: str, qtype: int) -> Iterator[Cause]:
        name = "/".join(service.key)
        ports = {port_labels(one): one.port for one in service.ports}
        if service.is_headless:
            slices = self.state.slices_of(service.key)
            ports = {port_labels(one): one.port or 0 for each in slices for one in each.ports or ()} or ports
        shown = ", ".join(
            f"{label.lstrip('_') or '(unnamed)'}/{proto[1:].upper()} {number}"
            for (label, proto), number in ports.items()
        )
        wanted = port.lstrip("_")
        if (port, protocol) in ports:
            if qtype not in {SRV, ANY}:
                yield Cause(f'port "{wanted}" of Service {name} has SRV records only', "")
            elif service.is_headless:
                yield from self._headless(service, SRV)
            else:
                yield from self._virtual(service, SRV)
        elif others := [proto[1:].upper() for label, proto in ports if label == port]:
            yield Cause(f'port "{wanted}" of Service {name} is {and_(others)}, not {protocol[1:].upper()}')
        else:
            near = self._closest(wanted, (label.lstrip("_") for label, _ in ports))
            hint = f' (meant "{near}"?)' if near else ""
            yield Cause(f'Service {name} has no port "{wanted}"{hint}; its ports: {shown or "none"}')

    def _endpoint(self, service: Service, label: str) -> Iterator[Cause]:
        name = "/".join(service.key)
        every = [
            (endpoint_label(each, self.options), endpoint)
            for one in self.state.slices_of(service.key)
            for endpoint in one.endpoints or ()
            for each in addresses_of(endpoint)
        ]
        own = [endpoint for text, endpoint in every if text == label]
        if any(endpoint.is_ready for endpoint in own):
            yield Cause(f"endpoint {endpoint_text(own[0])} of Service {name} has this name")
        elif own:
            yield Cause(f"endpoint {endpoint_text(own[0])} of Service {name} is not Ready")
        else:
            near = self._closest(label, (text for text, _ in every))
            names = ", ".join(sorted({text for text, _ in every})[:SHOWN])
            pod = self.state.pods.get((service.key[0], label))
            why = ""
            if pod is not None and not self.options.endpoint_pod_names:
                why = f"; Pod {label} has a name here only with spec.hostname and spec.subdomain, or endpoint_pod_names"
            yield Cause(
                f'Service {name} has no endpoint "{label}"'
                + (f'; there is "{near}"' if near else f"; its endpoints: {names or 'none'}")
                + why
            )

    # Pods and addresses

    def _of_pod(self, namespace: str, front: Sequence[str]) -> Iterator[Cause]:
        if len(front) != 1:
            yield Cause("Pods have names made of their addresses only, as in 10-244-0-7.NAMESPACE.pod")
            return
        address = undashed(front[0])
        if self.options.pods is PodMode.DISABLED:
            yield Cause("the Corefile gives Pods no names: the option is `pods insecure` or `pods verified`")
        elif hidden := [*self._hidden(namespace)]:
            yield from hidden
        elif not address:
            yield Cause(f'"{front[0]}" is no address with dashes, such as 10-244-0-7')
        elif self.options.pods is PodMode.INSECURE:
            yield Cause("`pods insecure` answers with the address in the name, whether a Pod has it or not")
        else:
            yield from self._verified(namespace, address)

    def _verified(self, namespace: str, address: bytes) -> Iterator[Cause]:
        keys = self.state.pods_by_ip[address]
        here = [name for space, name in keys if space == namespace]
        if here:
            yield Cause(f"Pod {namespace}/{here[0]} has address {unpacked(address)}")
        elif keys:
            others = ", ".join("/".join(key) for key in [*keys][:SHOWN])
            yield Cause(f'no running Pod in "{namespace}" has address {unpacked(address)}; {others} has it')
        else:
            yield Cause(f"no running Pod has address {unpacked(address)}", f"kubectl get pods -n {namespace} -o wide")

    def _of_address(self, labels: Labels) -> Iterator[Cause]:
        address = reversed_address(labels)
        if address is None:
            yield Cause(f"{text_of(labels)} is no whole address")
            return
        services = [*self.state.services_by_ip[address]]
        slices = [self.state.slices[key] for key in self.state.slices_by_ip[address]]
        pods = [*self.state.pods_by_ip[address]]
        if services:
            yield Cause(f"{unpacked(address)} is the cluster IP of Service {and_(['/'.join(key) for key in services])}")
        elif slices:
            owners = [f"{one.service_key[0]}/{one.service_key[1]}" for one in slices if one.service_key]
            yield Cause(f"{unpacked(address)} is an endpoint of {and_(owners[:SHOWN]) or 'a slice without a Service'}")
        elif pods:
            yield Cause(
                f"{unpacked(address)} is Pod {'/'.join(pods[0])}, which is no endpoint of a Service and has no name"
            )
        else:
            yield Cause(f"no Service, endpoint or Pod has address {unpacked(address)}")

    def _without_branch(self, relative: Sequence[str]) -> Iterator[Cause]:
        """Yields why a name without `svc` or `pod` in front of the zone does not exist."""
        front = relative[::-1]
        zone = self.zone.name.rstrip(".")
        if len(front) == 2 and (front[1], front[0]) in self.state.services:
            full = f"{front[0]}.{front[1]}.svc.{zone}"
            yield Cause(f"`svc` is missing: the name of Service {front[1]}/{front[0]} is {full}")
        elif len(front) > 1:
            asked = ".".join(front)
            yield Cause(f"a search list made this name of {asked}; in front of {zone} there is only `svc` or `pod`")
        else:
            yield Cause(f"in front of {zone} there is only `svc` or `pod`, as in {front[0]}.NAMESPACE.svc.{zone}")
