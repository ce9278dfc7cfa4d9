"""The causes of an answer about the cluster: what stands in its objects, and what stands nowhere."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from kdns.cluster.objects import Endpoint, Key, Pod, Service
from kdns.cluster.packed import EndpointAddress, addresses_of, ready_addresses
from kdns.cluster.readiness import SHOWN, Cause, and_, count, endpoint_text, nothing_ready
from kdns.cluster.state import State
from kdns.dns.names import Labels, is_below, labels_of, reversed_address, text_of
from kdns.dns.types import AAAA, ANY, CNAME, SRV, A, address_type, type_name
from kdns.net import Family, family_of_text, packed, parse_address, unpacked
from kdns.plugins.sources.kubernetes.dashed import undashed
from kdns.plugins.sources.kubernetes.options import Options, PodMode
from kdns.plugins.sources.kubernetes.service import endpoint_label, port_labels
from kdns.plugins.sources.kubernetes.zone import KubernetesZone
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
                return [*(self._hidden(namespace) or self._of_namespace(namespace))]
            case ["svc", namespace, name, *below]:
                return [*self._of_service((namespace, name), below[::-1], qtype)]
            case ["pod", namespace, *front]:
                return [*self._of_pod(namespace, front[::-1])]
        return [*self._without_branch(relative[::-1], qtype)]

    def outside(self, labels: Labels, qtype: int) -> Cause | None:
        """Returns the cause that a folded name outside of the zone was meant for an object in it; None if it was not.

        The name ends in another zone, or in none, behind `svc`: web.shop.svc, web.shop.svc.cluster.locl.
        """
        words = [label.decode("latin-1") for label in labels]
        fronts = [words[: at + 1] for at, word in enumerate(words) if word == "svc" and at > 1]
        if self._closest(".".join(words[-self.zone.depth :]), [self._zone]):
            fronts.append(words[: -self.zone.depth])
        for front in filter(None, fronts):
            causes = self.of((*(word.encode("latin-1") for word in front), *self.zone.labels), qtype)
            if meant := next((cause.meant for cause in causes if cause.meant), ""):
                rest = ".".join(words[len(front) :])
                other = f"not {rest}" if rest else "which is missing"
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
        """Returns why no name of a namespace exists, nothing if some may. `near` is the one that was meant."""
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
        """Returns the full name of a Service, or of the port or endpoint of it that was meant; "" if it has none."""
        mended = self._mended(service, below)
        return "" if mended is None else self._name(*mended, *service.key[::-1])

    def _mended(self, service: Service, below: Sequence[str]) -> Sequence[str] | None:
        """Returns labels below a Service without their typing errors; None for labels like none that it has."""
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
        """Returns what is said in place of a look at the endpoints, nothing where there is time for it."""
        number = sum(len(one.endpoints or ()) for one in self.state.slices_of(service.key))
        if not self.is_brief or number <= LOOKED_AT:
            return ()
        return (Cause(f"Service {'/'.join(service.key)} has {number} endpoints: `kdns explain` looks at them"),)

    def _no_namespace(self, key: Key, below: Sequence[str]) -> Iterator[Cause]:
        namespace, name = key
        having = [space for space in self._spaces() if (space, name) in self.state.services]
        near = self._closest(namespace, having)
        if near or not (space := self._closest(namespace, self._spaces())):
            others = sorted(having, key=lambda space: (space != near, space))
            meant = self._full(self.state.services[others[0], name], below) if others else ""
            yield from self._hidden(namespace, meant, near)
            if others:
                yield Cause(f'{and_(others[:SHOWN])} {_has(others)} Service "{name}": {self._named(name, others)}')
            return
        other = self._closest(name, self._services_in(space))
        meant = self._full(self.state.services[space, other], below) if other else ""
        yield from self._hidden(namespace, meant, space)
        if having:
            yield Cause(f'{and_(having[:SHOWN])} {_has(having)} Service "{name}": {self._named(name, having)}')
        else:
            yield Cause(f'there is no Service "{name}" in "{space}"' + (f'; there is "{other}"' if other else ""))

    def _no_service(self, key: Key, below: Sequence[str]) -> Iterator[Cause]:
        namespace, name = key
        is_pod = not below and key in self.state.pods
        near = "" if is_pod else self._closest(name, self._services_in(namespace))
        meant = self._full(self.state.services[namespace, near], below) if near else ""
        others = [space for space in self._spaces() if (space, name) in self.state.services]
        if not meant and others:
            meant = self._full(self.state.services[others[0], name], below)
        if below and not meant:
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
        """Yields which Pod or Namespace has the name of a Service that does not exist, or which Service a like one."""
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
            spaces = sorted(space for space, other in self.state.services if other == near)
            yield Cause(f'{and_(spaces[:SHOWN])} {_has(spaces)} Service "{near}": {self._named(near, spaces)}')

    def _name_of_pod(self, pod: Pod) -> str:
        """Returns the name that a headless Service gives a Pod, or else that of its address; "" for none."""
        for address in pod.addresses:
            for key in self.state.slices_by_ip[packed(address)]:
                owner = self.state.slices[key].service_key
                service = owner and self.state.services.get(owner)
                if service and service.is_headless:
                    labels = [text for text, one in self._endpoints(service) if address in one.addresses]
                    return self._full(service, labels[:1])
        return ""

    def _spaces(self) -> Iterable[str]:
        return sorted(name for _, name in self.state.namespaces)

    def _services_in(self, namespace: str) -> Iterable[str]:
        return (name for space, name in self.state.services if space == namespace)

    def _named(self, service: str, namespaces: Iterable[str]) -> str:
        return listed((self._name(service, space).rstrip(".") for space in namespaces), SHOWN)

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
                yield from self._alias_outside(self.state.services[circle[-1]])
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

    def _alias_outside(self, service: Service) -> Iterator[Cause]:
        """Yields which Service an externalName outside of the zone was meant for: it has no search list."""
        target = service.spec.external_name.rstrip(".").lower()
        words = target.split(".")
        key = (words[1] if len(words) > 1 else service.key[0]), words[0]
        if words[2:] in ([], ["svc"]) and key in self.state.services:
            name = self._name(words[0], key[0]).rstrip(".")
            yield Cause(f"externalName {target} is taken as a full name; that of Service {'/'.join(key)} is {name}")
        elif (cause := self.outside(tuple(word.encode() for word in words), A)) is not None:
            yield cause

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
        """Returns the numbers of a Service's ports by their two labels; those of its endpoints if it is headless."""
        ports = {port_labels(one): one.port for one in service.ports}
        if service.is_headless:
            slices = self.state.slices_of(service.key)
            ports = {port_labels(one): one.port or 0 for each in slices for one in each.ports or ()} or ports
        return ports

    def _endpoints(self, service: Service) -> Iterator[tuple[str, Endpoint]]:
        """Yields the endpoints of a Service, ready or not, with their labels below its name."""
        for one in self.state.slices_of(service.key):
            for endpoint in one.endpoints or ():
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
        every = [*self._endpoints(service)]
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
        near = namespace
        if ("", namespace) not in self.state.namespaces:
            near = self._closest(namespace, self._spaces())
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
        here = [name for space, name in keys if space == namespace]
        if here:
            yield Cause(f"Pod {namespace}/{here[0]} has address {unpacked(address)}")
        elif keys:
            others = ", ".join("/".join(key) for key in [*keys][:SHOWN])
            yield Cause(f'no running Pod in "{namespace}" has address {unpacked(address)}; {others} has it')
        else:
            has_any = any(space == namespace for space, _ in self.state.pods)
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
            owners = [f"{one.service_key[0]}/{one.service_key[1]}" for one in slices if one.service_key]
            yield Cause(f"{unpacked(address)} is an endpoint of {and_(owners[:SHOWN]) or 'a slice without a Service'}")
        elif pods:
            yield Cause(
                f"{unpacked(address)} is Pod {'/'.join(pods[0])}, which is no endpoint of a Service and has no name"
            )
        else:
            yield Cause(f"no Service, endpoint or Pod has address {unpacked(address)}")

    def _without_branch(self, front: Sequence[str], qtype: int) -> Iterator[Cause]:
        """Yields why a name without `svc` or `pod` in front of the zone does not exist."""
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
            asked = ".".join(front)
            yield Cause(
                f"a search list made this name of {asked}; in front of {self._zone} there is only `svc` or `pod`"
            )
        else:
            yield Cause(
                f"in front of {self._zone} there is only `svc` or `pod`, as in {last}.NAMESPACE.svc.{self._zone}"
            )


def _has(subjects: Sequence[str]) -> str:
    return "has" if len(subjects) == 1 else "have"
