"""Servers of this machine as Services: those of `kdns up --add`, and the published ports of a compose file."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final

from kdns.controlplane.apimachinery.formats import dns_label, dns_label_1035
from kdns.controlplane.endpoints.pod_endpoints import SERVICE_NAME
from kdns.errors import InputError
from kdns.net import parse_port, split_host_port
from kdns.runtime.files.bounded import text_of
from kdns.runtime.files.yaml import documents

ADDED: Final = Path("--add")
LOOPBACK: Final = "127.0.0.1"
MAX_RANGE: Final = 1000
_VARIABLE: Final = re.compile(r"\$(?:\$|(?P<bare>\w+)|\{(?P<name>\w+)(?:(?P<colon>:)?-(?P<default>[^}]*))?\})")
_PUBLISHED: Final = re.compile(
    r"(?:(?P<host>\[[0-9a-fA-F:]+\]|[0-9.]+):)?(?P<published>\d+)(?:-(?P<last>\d+))?"
    r":(?P<target>\d+)(?:-\d+)?(?:/(?P<protocol>tcp|udp))?"
)
_EXPECTED: Final = "expected [NAMESPACE/]NAME=HOST:PORT[,HOST:PORT...], such as web=127.0.0.1:8000"


@dataclass(frozen=True, slots=True)
class Addition:
    """A server: the Service that it is an endpoint of, its IP address and port, and its protocol."""

    namespace: str
    name: str
    address: str
    port: int
    protocol: str = "TCP"


def added(texts: Iterable[str]) -> list[Addition]:
    """Raises InputError for text of another form."""
    return [each for text in texts for each in _added(text)]


def _added(text: str) -> Iterator[Addition]:
    where, _, servers = text.partition("=")
    namespace, _, name = where.rpartition("/")
    for what, given, problems in (
        ("namespace", namespace or "default", dns_label(namespace or "default")),
        ("name", name, dns_label_1035(name)),
    ):
        if problems:
            raise InputError(f"--add {text!r}: {what} {given!r}: {problems[0]}; {_EXPECTED}")
    for server in servers.split(","):
        host, port_text = split_host_port(server) or ("", "")
        port = parse_port(port_text)
        address = _address(host)
        if not port or not address:
            raise InputError(f"--add {text!r}: {_EXPECTED}")
        yield Addition(namespace or "default", name, address, port)


def composed(path: Path, environment: Mapping[str, str] = os.environ) -> list[Addition]:
    """The published ports of a compose file. Raises ManifestError, and InputError that names the service."""
    found: list[Addition] = []
    for document in documents(str(path), text_of(path)):
        services = document.value.get("services") if isinstance(document.value, dict) else None
        if not isinstance(services, dict):
            raise InputError(f"{path}:{document.line}: expected a compose file, which has `services`")
        for name, service in services.items():
            ports = service.get("ports") if isinstance(service, dict) else None
            for row in ports if isinstance(ports, list) else ():
                found += _published(f"{path}: services.{name}.ports", str(name), row, environment)
    return found


def _published(where: str, service: str, row: Any, environment: Mapping[str, str]) -> Iterator[Addition]:
    name = service.lower().replace("_", "-").replace(".", "-")
    if problems := dns_label_1035(name):
        raise InputError(f"{where}: the service's name as a Service's, {name!r}: {problems[0]}")
    if isinstance(row, dict):
        host, published, protocol = str(row.get("host_ip") or ""), row.get("published"), row.get("protocol") or "tcp"
        host = f"[{host}]:" if ":" in host else host and f"{host}:"
        row = f"{host}{published}:{row.get('target')}/{protocol}" if published else ""
    text = _VARIABLE.sub(lambda found: _value(found, environment), str(row))
    if ":" not in text:
        return
    found = _PUBLISHED.fullmatch(text)
    first = parse_port(found["published"]) if found else None
    last = parse_port(found["last"]) if found and found["last"] else first
    address = _address((found["host"] or LOOPBACK).strip("[]")) if found else ""
    if not found or not first or not last or not address:
        raise InputError(f"{where}: expected [HOST:]PUBLISHED:TARGET[/tcp|udp], got {text!r}")
    if last - first >= MAX_RANGE:
        raise InputError(f"{where}: expected a range of at most {MAX_RANGE} ports, got {text!r}")
    for port in range(first, last + 1):
        yield Addition("default", name, address, port, (found["protocol"] or "tcp").upper())


def _value(found: re.Match[str], environment: Mapping[str, str]) -> str:
    name = found["bare"] or found["name"]
    if name is None:
        return "$"
    value = environment.get(name)
    if value is None or (found["colon"] and not value):
        return found["default"] or value or ""
    return value


def _address(host: str) -> str:
    """In canonical form, 127.0.0.1 or ::1 for all addresses; "" for anything else."""
    try:
        address = ip_address(LOOPBACK if host == "localhost" else host)
    except ValueError:
        return ""
    if address.is_unspecified:
        return LOOPBACK if address.version == 4 else "::1"
    return str(address)


def manifests(additions: Iterable[Addition], *, has_relays: bool, has_proxy: bool) -> str:
    """Returns Services and EndpointSlices of these servers, and their Namespaces, as the text of manifests.

    A Service is headless, so that its name leads to the server itself. Where the dataplane can reach its servers, which
    needs relays for those on loopback addresses, it has a cluster IP with the same ports.
    """
    services: dict[tuple[str, str], list[Addition]] = {}
    for each in dict.fromkeys(additions):
        services.setdefault((each.namespace, each.name), []).append(each)
    objects: list[dict[str, Any]] = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        for name in sorted({namespace for namespace, _ in services} - {"default"})
    ]
    for key, servers in services.items():
        is_virtual = has_relays or (has_proxy and not any(ip_address(each.address).is_loopback for each in servers))
        objects += _objects(*key, servers, is_virtual=is_virtual)
    return "".join(f"---\n{json.dumps(each)}\n" for each in objects)


def _objects(namespace: str, name: str, servers: list[Addition], *, is_virtual: bool) -> Iterator[dict[str, Any]]:
    families = sorted({f"IPv{ip_address(each.address).version}" for each in servers})
    ports = list(dict.fromkeys((each.port, each.protocol) for each in servers))
    spec: dict[str, Any] = {
        "ipFamilies": families,
        "ipFamilyPolicy": "SingleStack" if len(families) == 1 else "RequireDualStack",
        "ports": [_port(*each) for each in ports],
    }
    if not is_virtual:
        spec["clusterIP"] = "None"
    metadata = {"name": name, "namespace": namespace}
    yield {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}
    for number, (port, protocol) in enumerate(ports):
        for family in families:
            addresses = [
                each.address
                for each in servers
                if (each.port, each.protocol) == (port, protocol) and family == f"IPv{ip_address(each.address).version}"
            ]
            if addresses:
                yield {
                    "apiVersion": "discovery.k8s.io/v1",
                    "kind": "EndpointSlice",
                    "metadata": {
                        "name": f"{name}-{family.lower()}-{number}",
                        "namespace": namespace,
                        "labels": {SERVICE_NAME: name},
                    },
                    "addressType": family,
                    "endpoints": [{"addresses": [each], "conditions": {"ready": True}} for each in addresses],
                    "ports": [_port(port, protocol)],
                }


def _port(port: int, protocol: str) -> dict[str, Any]:
    return {"name": f"{protocol.lower()}-{port}", "port": port, "protocol": protocol}
