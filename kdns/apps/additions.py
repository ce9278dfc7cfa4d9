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
    """Raises InputError for malformed text."""
    return [addition for text in texts for addition in _added(text)]


def _added(text: str) -> Iterator[Addition]:
    where, _, servers = text.partition("=")
    namespace, _, name = where.rpartition("/")
    for what, value, problems in (
        ("namespace", namespace or "default", dns_label(namespace or "default")),
        ("name", name, dns_label_1035(name)),
    ):
        if problems:
            raise InputError(f"--add {text!r}: {what} {value!r}: {problems[0]}; {_EXPECTED}")
    for server in servers.split(","):
        host, port_text = split_host_port(server) or ("", "")
        port = parse_port(port_text)
        address = _address(host)
        if not port or not address:
            raise InputError(f"--add {text!r}: {_EXPECTED}")
        yield Addition(namespace or "default", name, address, port)


def composed(path: Path, environment: Mapping[str, str] = os.environ) -> list[Addition]:
    """The published ports of a compose file. Raises ManifestError, and InputError that names the service."""
    additions: list[Addition] = []
    for document in documents(str(path), text_of(path)):
        services = document.value.get("services") if isinstance(document.value, dict) else None
        if not isinstance(services, dict):
            raise InputError(f"{path}:{document.line}: expected a compose file, which has `services`")
        for name, service in services.items():
            ports = service.get("ports") if isinstance(service, dict) else None
            for row in ports if isinstance(ports, list) else ():
                additions += _published(f"{path}: services.{name}.ports", str(name), row, environment)
    return additions


def _published(where: str, service: str, row: Any, environment: Mapping[str, str]) -> Iterator[Addition]:
    name = service.lower().replace("_", "-").replace(".", "-")
    if problems := dns_label_1035(name):
        raise InputError(f"{where}: the service's name as a Service's, {name!r}: {problems[0]}")
    if isinstance(row, dict):
        host, published, protocol = str(row.get("host_ip") or ""), row.get("published"), row.get("protocol") or "tcp"
        host = f"[{host}]:" if ":" in host else host and f"{host}:"
        row = f"{host}{published}:{row.get('target')}/{protocol}" if published else ""
    text = _VARIABLE.sub(lambda variable: _value(variable, environment), str(row))
    if ":" not in text:
        return
    match = _PUBLISHED.fullmatch(text)
    first = parse_port(match["published"]) if match else None
    last = parse_port(match["last"]) if match and match["last"] else first
    address = _address((match["host"] or LOOPBACK).strip("[]")) if match else ""
    if not match or not first or not last or not address:
        raise InputError(f"{where}: expected [HOST:]PUBLISHED:TARGET[/tcp|udp], got {text!r}")
    if last - first >= MAX_RANGE:
        raise InputError(f"{where}: expected a range of at most {MAX_RANGE} ports, got {text!r}")
    for port in range(first, last + 1):
        yield Addition("default", name, address, port, (match["protocol"] or "tcp").upper())


def _value(variable: re.Match[str], environment: Mapping[str, str]) -> str:
    name = variable["bare"] or variable["name"]
    if name is None:
        return "$"
    value = environment.get(name)
    if value is None or (variable["colon"] and not value):
        return variable["default"] or value or ""
    return value


def _address(host: str) -> str:
    """The canonical form, 127.0.0.1 or ::1 for all addresses; "" for anything else."""
    try:
        address = ip_address(LOOPBACK if host == "localhost" else host)
    except ValueError:
        return ""
    if address.is_unspecified:
        return LOOPBACK if address.version == 4 else "::1"
    return str(address)


def manifests(additions: Iterable[Addition], *, has_relays: bool, has_proxy: bool) -> str:
    """Manifests of the Services and EndpointSlices of these servers, and their Namespaces.

    A Service is headless, so its name resolves to the server itself. If the dataplane can reach its servers, it has a
    cluster IP with the same ports; servers on loopback addresses need relays for that.
    """
    services: dict[tuple[str, str], list[Addition]] = {}
    for addition in dict.fromkeys(additions):
        services.setdefault((addition.namespace, addition.name), []).append(addition)
    objects: list[dict[str, Any]] = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        for name in sorted({namespace for namespace, _ in services} - {"default"})
    ]
    for key, servers in services.items():
        has_loopback = any(ip_address(server.address).is_loopback for server in servers)
        objects += _objects(*key, servers, is_virtual=has_relays or (has_proxy and not has_loopback))
    return "".join(f"---\n{json.dumps(obj)}\n" for obj in objects)


def _objects(namespace: str, name: str, servers: list[Addition], *, is_virtual: bool) -> Iterator[dict[str, Any]]:
    families = sorted({f"IPv{ip_address(server.address).version}" for server in servers})
    ports = list(dict.fromkeys((server.port, server.protocol) for server in servers))
    spec: dict[str, Any] = {
        "ipFamilies": families,
        "ipFamilyPolicy": "SingleStack" if len(families) == 1 else "RequireDualStack",
        "ports": [_port(*port) for port in ports],
    }
    if not is_virtual:
        spec["clusterIP"] = "None"
    metadata = {"name": name, "namespace": namespace}
    yield {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}
    for number, (port, protocol) in enumerate(ports):
        for family in families:
            of_port = (server.address for server in servers if (server.port, server.protocol) == (port, protocol))
            addresses = [address for address in of_port if family == f"IPv{ip_address(address).version}"]
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
                    "endpoints": [{"addresses": [address], "conditions": {"ready": True}} for address in addresses],
                    "ports": [_port(port, protocol)],
                }


def _port(port: int, protocol: str) -> dict[str, Any]:
    return {"name": f"{protocol.lower()}-{port}", "port": port, "protocol": protocol}
