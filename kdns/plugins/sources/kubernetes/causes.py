"""The causes of an answer about the cluster: which objects it is from, and which are missing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from kdns.cluster.aliases import MAX_ALIASES, followed, short_name_of
from kdns.cluster.endpoints import EndpointAddress
from kdns.cluster.objects import Endpoint, Key, Pod, Service
from kdns.cluster.packed import addresses_of, ready_addresses
from kdns.cluster.readiness import SHOWN, Cause, and_, count, endpoint_text, nothing_ready
from kdns.cluster.state import State
from kdns.dns.names import Labels, reversed_address, text_of
from kdns.dns.types import AAAA, ANY, CNAME, SRV, A, address_type, type_name
from kdns.net import Family, family_of_text, packed, parse_address, unpacked
from kdns.plugins.sources.kubernetes.dashed import undashed
from kdns.plugins.sources.kubernetes.options import Options, PodMode
from kdns.plugins.sources.kubernetes.service import endpoint_label, port_labels
from kdns.plugins.sources.kubernetes.zone import KubernetesZone
from kdns.spelling import closest, listed

FAMILIES: Final[Mapping[int, Family]] = {A: "IPv4", AAAA: "IPv6"}
COMPARED: Final = 100
"""The most names that a misspelt one is compared with for a query: about 20 µs each."""
MAX_ENDPOINTS: Final = 1000
"""The most endpoints of a Service that are checked for a query: about 3 µs each."""


@dataclass(frozen=True, slots=True)
class ClusterCauses:
    """The causes of answers for names of one zone; `now_s` is Unix time.

    `is_brief`: for a query, so only what takes a few milliseconds.
    """

    state: State
    options: Options
    zone: KubernetesZone
    is_brief: bool = False
    now_s: float = 0.0

    def of(self, labels: Labels, qtype: int) -> list[Cause]:
        """The causes of the answer for a folded name of the zone, the nearest first."""
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
                return [*(self._hidden(namespace) or self._of_namespace(namespace))]
            case ["svc", namespace, name, *below]:
                return [*self._of_service((namespace, name), below[::-1], qtype)]
            case ["pod", namespace, *front]:
                return [*self._of_pod(namespace, front[::-1])]
        return [*self._without_branch(relative[::-1], qtype)]

    def outside(self, labels: Labels, qtype: int) -> Cause | None:
        """The cause if a folded name outside of the zone was meant for an object in it; None otherwise.

        Such a name has another zone after `svc`, or none: web.shop.svc, web.shop.svc.cluster.locl.
        """
        words = [label.decode("latin-1") for label in labels]
        fronts = [words[: at + 1] for at, word in enumerate(words) if word == "svc" and at > 1]
        if self._closest(".".join(words[-self.zone.depth :]), [self._zone]):
            fronts.append(words[: -self.zone.depth])
        for front in filter(None, fronts):
            causes = self.of((*(word.encode("latin-1") for word in front), *self.zone.labels), qtype)
            if meant := next((cause.meant for cause in causes if cause.meant), ""):
                suffix = ".".join(words[len(front) :])
                other = f"not {suffix}" if suffix else "which is missing"
                return Cause(f"the cluster's zone is {self._zone}, {other}: {meant.rstrip('.')}", meant=meant)
        return None

    @property
    def _zone(self) -> str:
        return self.zone.name.rstrip(".")

    def _name(self, *labels: str) -> str:
        return ".".join((*labels, "svc", self.zone.name))

    def _closest(self, word: str, words: Iterable[str]) -> str:
        return closest(word, islice(words, COMPARED if self.is_brief else None))

    # Services

    def _of_namespace(self, namespace: str) -> list[Cause]:
        return [Cause(f'Namespace "{namespace}" exists; it has no address, only the Services in it have')]

    def _hidden(self, namespace: str, meant: str = "", near: str = "") -> list[Cause]:
        """Why no name of a namespace exists; [] if some may. `near` is the namespace that was meant."""
        if ("", namespace) not in self.state.namespaces:
            near = near or self._closest(namespace, (name for _, name in self.state.namespaces))
            return [
                Cause(
                    f'there is no Namespace "{namespace}"' + (f'; there is "{near}"' if near else ""),
                    "kubectl get namespaces" if self.state.namespaces else "",
                    meant,
                )
            ]
        if self.options.namespaces is not None and namespace not in self.options.namespaces:
            shown = " ".join(sorted(self.options.namespaces))
            text = f'the Corefile hides Namespace "{namespace}": the option `namespaces {shown}` does not name it'
            return [Cause(text, meant=meant)]
        return []

    def _of_service(self, key: Key, below: Sequence[str], qtype: int) -> Iterator[Cause]:
        service = self.state.services.get(key)
        meant = self._full(service, below) if service is not None else ""
        if hidden := self._hidden(key[0], meant):
            yield from hidden if ("", key[0]) in self.state.namespaces else self._no_namespace(key, below)
        elif service is None:
            yield from self._no_service(key, below)
        else:
            yield from (cause._replace(meant=meant) for cause in self._of_known(service, below, qtype))

    def _of_known(self, service: Service, below: Sequence[str], qtype: int) -> Iterator[Cause]:
        if service.is_external_name:
            yield from self._alias(service)
        elif below:
            yield from self._below(service, below, qtype)
        elif service.is_headless:
            yield from self._too_many(service) or self._headless(service, qtype)
        else:
            yield from self._virtual(service, qtype)

    def _full(self, service: Service, below: Sequence[str]) -> str:
        """The full name of a Service, or of its port or endpoint that was meant; "" if it has none."""
        mended = self._mended(service, below)
        return "" if mended is None else self._name(*mended, *service.key[::-1])

    def _mended(self, service: Service, below: Sequence[str]) -> Sequence[str] | None:
        """Labels below a Service, with typos corrected; None if it has no similar ones."""
        match below:
            case []:
                return ()
            case [protocol] if protocol.startswith("_"):
                return below if protocol in {known for _, known in self._ports(service)} else None
            case [label] if not self._too_many(service):
                labels = {text for text, _ in self._endpoints(service)}
                near = label if label in labels else self._closest(label, labels)
                return (near,) if near else None
            case [port, protocol]:
                ports = self._ports(service)
                name = f"_{port.lstrip('_')}"
                known = [label for label, _ in ports]
                near = name if name in known else f"_{self._closest(name[1:], (label[1:] for label in known))}"
                same = [label for label in ports if label[0] == near and near != "_"]
                return min(same, key=lambda label: label[1] != f"_{protocol.lstrip('_')}", default=None)
        return None

    def _too_many(self, service: Service) -> tuple[Cause, ...]:
        """The cause in place of a check of all endpoints; () if there is time for that."""
        number = sum(len(endpoint_slice.endpoints or ()) for endpoint_slice in self.state.slices_of(service.key))
        if not self.is_brief or number <= MAX_ENDPOINTS:
            return ()
        return (Cause(f"Service {'/'.join(service.key)} has {number} endpoints: `kdns explain` looks at them"),)

    def _no_namespace(self, key: Key, below: Sequence[str]) -> Iterator[Cause]:
        namespace, name = key
        owners = [other for other in self._namespaces() if (other, name) in self.state.services]
        near = self._closest(namespace, owners)
        if near or not (similar := self._closest(namespace, self._namespaces())):
            others = sorted(owners, key=lambda other: (other != near, other))
            meant = self._full(self.state.services[others[0], name], below) if others else ""
            yield from self._hidden(namespace, meant, near)
            if others:
                yield Cause(f'{and_(others[:SHOWN])} {_has(others)} Service "{name}": {self._named(name, others)}')
            return
        service = self._closest(name, self._services_in(similar))
        meant = self._full(self.state.services[similar, service], below) if service else ""
        yield from self._hidden(namespace, meant, similar)
        if owners:
            yield Cause(f'{and_(owners[:SHOWN])} {_has(owners)} Service "{name}": {self._named(name, owners)}')
        else:
            hint = f'; there is "{service}"' if service else ""
            yield Cause(f'there is no Service "{name}" in "{similar}"{hint}')

    def _no_service(self, key: Key, below: Sequence[str]) -> Iterator[Cause]:
        namespace, name = key
        is_pod = not below and key in self.state.pods
        near = "" if is_pod else self._closest(name, self._services_in(namespace))
        meant = self._full(self.state.services[namespace, near], below) if near else ""
        others = [other for other in self._namespaces() if (other, name) in self.state.services]
        if not meant and others:
            meant = self._full(self.state.services[others[0], name], below)
        if below and not meant:
            queried = ".".join((*below, name))
            yield Cause(
                f'a search list made this name of {queried}, and there is no Service "{name}" in "{namespace}"; '
                f"with a dot at its end, `{queried}.` is asked as it is"
            )
            return
        if (deleted_s := self.state.deleted.get(key)) is not None and self.now_s:
            yield Cause(
                f"Service {namespace}/{name} was deleted {max(self.now_s - deleted_s, 0):.0f} s ago; "
                f"clients may hold its addresses for {self.options.ttl_s} s"
            )
        has_any = any(True for _ in self._services_in(namespace))
        yield Cause(
            f'there is no Service "{name}" in "{namespace}"' + (f'; there is "{near}"' if near else ""),
            f"kubectl get services -n {namespace}" if has_any else "",
            meant,
        )
        if others:
            yield Cause(f"{and_(others[:SHOWN])} {_has(others)} one: {self._named(name, others)}")
        is_namespace = not below and ("", name) in self.state.namespaces
        if is_pod or is_namespace or not (others or near or below):
            yield from self._other_kind(key)

    def _other_kind(self, key: Key) -> Iterator[Cause]:
        """Pods and Namespaces with the name of a missing Service, or a Service with a similar name."""
        _, name = key
        if pod := self.state.pods.get(key):
            endpoint = self._name_of_pod(pod)
            if endpoint:
                yield Cause(f"it is a Pod, whose name is {endpoint.rstrip('.')}", meant=endpoint)
            else:
                yield Cause("it is a Pod, and no headless Service gives it a name")
        elif ("", name) in self.state.namespaces:
            yield Cause(f'"{name}" is a Namespace; the names of its Services are NAME.{name}')
        elif self.is_brief:
            return
        elif near := self._closest(name, dict.fromkeys(other for _, other in self.state.services)):
            namespaces = sorted(namespace for namespace, other in self.state.services if other == near)
            owners = and_(namespaces[:SHOWN])
            yield Cause(f'{owners} {_has(namespaces)} Service "{near}": {self._named(near, namespaces)}')

    def _name_of_pod(self, pod: Pod) -> str:
        """The name that a headless Service gives a Pod, "" for none."""
        for address in pod.addresses:
            for key in self.state.slices_by_ip[packed(address)]:
                owner = self.state.slices[key].service_key
                service = owner and self.state.services.get(owner)
                if service and service.is_headless:
                    labels = [label for label, endpoint in self._endpoints(service) if address in endpoint.addresses]
                    return self._full(service, labels[:1])
        return ""

    def _namespaces(self) -> Iterable[str]:
        return sorted(name for _, name in self.state.namespaces)

    def _services_in(self, namespace: str) -> Iterable[str]:
        return (name for other, name in self.state.services if other == namespace)

    def _named(self, service: str, namespaces: Iterable[str]) -> str:
        return listed((self._name(service, namespace).rstrip(".") for namespace in namespaces), SHOWN)

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
        alias = followed(self.state.services, service, self.zone.name)
        if alias.loop:
            names = " → ".join(name for _, name in (*alias.way, alias.loop[-1]))
            yield Cause(f"{names}: a loop of {len(alias.way)} ExternalName Services")
        elif alias.end is None:
            yield from self._alias_outside(self.state.services[alias.way[-1]])
        elif len(alias.way) <= MAX_ALIASES:
            yield from self._of_service(alias.end, (), A)

    def _alias_outside(self, service: Service) -> Iterator[Cause]:
        """The Service that an externalName outside of the zone was meant for: no search list applies to it."""
        target = service.spec.external_name.rstrip(".").lower()
        if key := short_name_of(self.state.services, service):
            name = self._name(key[1], key[0]).rstrip(".")
            yield Cause(f"externalName {target} is taken as a full name; that of Service {'/'.join(key)} is {name}")
        elif (cause := self.outside(tuple(word.encode() for word in target.split(".")), A)) is not None:
            yield cause

    def _virtual(self, service: Service, qtype: int) -> Iterator[Cause]:
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
        slices = self.state.slices_of(service.key)
        if not any(True for endpoint_slice in slices for _ in ready_addresses(endpoint_slice)):
            cause = nothing_ready(self.state, service)
            yield cause._replace(text=f"nothing is behind it: {cause.text}")

    def _headless(self, service: Service, qtype: int) -> Iterator[Cause]:
        name, slices = "/".join(service.key), self.state.slices_of(service.key)
        ready = [endpoint for endpoint_slice in slices for endpoint in ready_addresses(endpoint_slice)]
        if not self.options.endpoints:
            yield Cause("the Corefile's option `noendpoints` leaves headless Services without names")
        elif not ready and not any(endpoint_slice.address_type == "FQDN" for endpoint_slice in slices):
            cause = nothing_ready(self.state, service)
            yield cause._replace(text=f"no endpoint of headless Service {name} is ready: {cause.text}")
        elif qtype in FAMILIES and qtype not in {address_type(endpoint.address) for endpoint in ready}:
            yield Cause(
                f"the {len(ready)} ready endpoints of headless Service {name} have no {FAMILIES[qtype]} address"
            )
        elif qtype not in {A, AAAA, SRV, ANY, CNAME}:
            yield Cause(f"headless Service {name} exists, and has no records of type {type_name(qtype)}")
        else:
            yield Cause(f"headless Service {name} has {count(len(ready), 'ready endpoint')}: {self._ends(ready)}")

    def _ends(self, ready: Sequence[EndpointAddress]) -> str:
        return listed((f"{endpoint.pod} {unpacked(endpoint.address)}".lstrip() for endpoint in ready), SHOWN)

    # Below a Service

    def _below(self, service: Service, below: Sequence[str], qtype: int) -> Iterator[Cause]:
        namespace, name = service.key
        match below:
            case [port, protocol] if port.startswith("_") and protocol.startswith("_"):
                yield from self._port(service, port, protocol, qtype)
            case [label] if label.startswith("_"):
                ports = self._ports(service)
                protocol = next((known for port, known in ports if label in {port, known}), "_tcp")
                yield Cause(f"the names of Service {namespace}/{name}'s ports are as in _PORT.{protocol}")
            case [label]:
                yield from self._too_many(service) or self._endpoint(service, label)
            case [port, protocol] if self._mended(service, below):
                yield Cause(f"the labels of a port begin with `_`: {self._full(service, below).rstrip('.')}")
            case _:
                yield Cause(f"nothing is {count(len(below), 'label')} below Service {namespace}/{name}")

    def _ports(self, service: Service) -> dict[tuple[str, str], int]:
        """Port and protocol labels → number; of a headless Service the ports of its endpoints."""
        ports = {port_labels(port): port.port for port in service.ports}
        if service.is_headless:
            endpoint_ports = [port for part in self.state.slices_of(service.key) for port in part.ports or ()]
            ports = {port_labels(port): port.port or 0 for port in endpoint_ports} or ports
        return ports

    def _endpoints(self, service: Service) -> Iterator[tuple[str, Endpoint]]:
        """Endpoints of a Service, ready or not, with their labels below its name."""
        for endpoint_slice in self.state.slices_of(service.key):
            for endpoint in endpoint_slice.endpoints or ():
                for address in addresses_of(endpoint):
                    yield endpoint_label(address, self.options), endpoint

    def _port(self, service: Service, port: str, protocol: str, qtype: int) -> Iterator[Cause]:
        name = "/".join(service.key)
        ports = self._ports(service)
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
        endpoints = [*self._endpoints(service)]
        own = [endpoint for text, endpoint in endpoints if text == label]
        if any(endpoint.is_ready for endpoint in own):
            yield Cause(f"endpoint {endpoint_text(own[0])} of Service {name} has this name")
        elif own:
            yield Cause(f"endpoint {endpoint_text(own[0])} of Service {name} is not Ready")
        else:
            near = self._closest(label, (text for text, _ in endpoints))
            names = ", ".join(sorted({text for text, _ in endpoints})[:SHOWN])
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
        near = namespace
        if ("", namespace) not in self.state.namespaces:
            near = self._closest(namespace, self._namespaces())
        meant = f"{front[0]}.{near}.pod.{self.zone.name}" if address and near else ""
        if self.options.pods is PodMode.DISABLED:
            yield Cause("the Corefile gives Pods no names: the option is `pods insecure` or `pods verified`")
        elif hidden := self._hidden(namespace, meant, near):
            yield from hidden
        elif not address:
            yield Cause(f'"{front[0]}" is no address with dashes, such as 10-244-0-7')
        elif self.options.pods is PodMode.INSECURE:
            text = "`pods insecure` answers with the address in the name, whether a Pod has it or not"
            yield Cause(text, meant=meant)
        else:
            yield from (cause._replace(meant=meant) for cause in self._verified(namespace, address))

    def _verified(self, namespace: str, address: bytes) -> Iterator[Cause]:
        keys = self.state.pods_by_ip[address]
        pods = [name for other, name in keys if other == namespace]
        if pods:
            yield Cause(f"Pod {namespace}/{pods[0]} has address {unpacked(address)}")
        elif keys:
            others = ", ".join("/".join(key) for key in [*keys][:SHOWN])
            yield Cause(f'no running Pod in "{namespace}" has address {unpacked(address)}; {others} has it')
        else:
            has_any = any(other == namespace for other, _ in self.state.pods)
            command = f"kubectl get pods -n {namespace} -o wide" if has_any else ""
            yield Cause(f"no running Pod has address {unpacked(address)}", command)

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
            owners = ["/".join(part.service_key) for part in slices if part.service_key]
            yield Cause(f"{unpacked(address)} is an endpoint of {and_(owners[:SHOWN]) or 'a slice without a Service'}")
        elif pods:
            yield Cause(
                f"{unpacked(address)} is Pod {'/'.join(pods[0])}, which is no endpoint of a Service and has no name"
            )
        else:
            yield Cause(f"no Service, endpoint or Pod has address {unpacked(address)}")

    def _without_branch(self, front: Sequence[str], qtype: int) -> Iterator[Cause]:
        """A name without `svc` or `pod` in front of the zone."""
        *words, last = front
        branches = [("svc", front, "`svc` is missing")]
        if branch := self._closest(last, ("svc", "pod", "service", "services")):
            branches.insert(0, ("pod" if branch == "pod" else "svc", words, f"`{last}` is neither `svc` nor `pod`"))
        for branch, labels, mistake in branches:
            relative = (*labels, branch)
            if len(labels) > 1:
                inner = self.of((*(word.encode("latin-1") for word in relative), *self.zone.labels), qtype)
                if meant := next((cause.meant for cause in inner if cause.meant), ""):
                    *_, name, namespace = meant.removesuffix(f".{branch}.{self.zone.name}").split(".")
                    of = f" of Service {namespace}/{name}" if branch == "svc" else ""
                    yield Cause(f"{mistake}: the name{of} is {meant.rstrip('.')}", meant=meant)
                    return
        if words:
            queried = ".".join(front)
            yield Cause(
                f"a search list made this name of {queried}; in front of {self._zone} there is only `svc` or `pod`"
            )
        else:
            yield Cause(
                f"in front of {self._zone} there is only `svc` or `pod`, as in {last}.NAMESPACE.svc.{self._zone}"
            )


def _has(subjects: Sequence[str]) -> str:
    return "has" if len(subjects) == 1 else "have"
