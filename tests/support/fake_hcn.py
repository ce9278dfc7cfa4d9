"""The host compute network service (HCN) of Windows, simulated: its objects, what it refuses, and what packets get.

It validates each request against the schema of version 2.0 as hcsshim writes it, and refuses what the service refuses:
two load balancers for one destination, an id or address that exists, unknown ids. `libraries` gives its functions as
those of computenetwork.dll, so that callers go through ctypes, GUIDs, handles, buffers and error records.

It was made from documentation and from kube-proxy's and hcsshim's sources: no Windows has confirmed it.
"""

import ctypes
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Any, Final, NamedTuple, TypeAlias
from uuid import UUID, uuid5

from kdns.proxy.kernelspace.io.compute_network import SIGNATURES, Libraries

Json: TypeAlias = dict[str, Any]

INVALID: Final = 0x80070057
EXISTS: Final = 0x800700B7
ENDPOINT_NOT_FOUND: Final = 0x803B0002
NETWORK_NOT_FOUND: Final = 0x803B0001
NOT_FOUND: Final = 0x80070490
PORT_EXISTS: Final = 0x803B0013
IN_USE: Final = 0x803B000F
NOT_IMPLEMENTED: Final = 0x80004001
CODES: Final = {"Network": NETWORK_NOT_FOUND, "Endpoint": ENDPOINT_NOT_FOUND, "LoadBalancer": NOT_FOUND}

NETWORK_ID: Final = "6f1cf1a1-2d6e-4c0c-9d0b-1f0c7a3d5e77"
_CNI: Final = UUID("d9b1c1c2-0000-4000-8000-000000000000")

VERSION: Final[Json] = {"Major": int, "Minor": int}
POLICY: Final[Json] = {"Type": str, "Settings": {"ProviderAddress": str}}
SCHEMA: Final[dict[str, Json]] = {
    "Endpoint": {
        "ID": str,
        "HostComputeNetwork": str,
        "Policies": [POLICY],
        "IpConfigurations": [{"IpAddress": str, "PrefixLength": int}],
        "MacAddress": str,
        "Flags": int,
        "SchemaVersion": VERSION,
    },
    "LoadBalancer": {
        "ID": str,
        "HostComputeEndpoints": [str],
        "SourceVIP": str,
        "FrontendVIPs": [str],
        "PortMappings": [
            {"Protocol": int, "InternalPort": int, "ExternalPort": int, "DistributionType": int, "Flags": int}
        ],
        "Flags": int,
        "SchemaVersion": VERSION,
    },
    "Query": {"SchemaVersion": VERSION, "Flags": int, "Filter": str},
    "Modification": {"ResourceType": str, "RequestType": str, "Settings": {"Policies": [POLICY]}},
}
"""Fields and types of documents; a list has one item that stands for all."""
LOAD_BALANCER_FLAGS: Final = range(4)
MAPPING_FLAGS: Final = range(32)
DISTRIBUTIONS: Final = range(3)
PROTOCOLS: Final = {"TCP": 6, "UDP": 17}


class RefusalError(Exception):
    """A request that the service refuses, with its HRESULT."""

    def __init__(self, code: int, reason: str) -> None:
        self.code = code
        super().__init__(reason)


class Answer(NamedTuple):
    """The endpoints of which a packet gets one, with the port, and whether they see another source than the client."""

    endpoints: frozenset[str]
    port: int
    is_translated: bool
    keeps_client: bool


@dataclass
class FakeHcn:
    """The service. `requests` are those that changed objects; `fails` returns the HRESULT of a call that is to fail."""

    network_type: str = "L2Bridge"
    version: tuple[int, int] = (15, 4)
    modifies: bool = True
    subnets: dict[str, str] = field(default_factory=dict)
    """The node of each range of Pods, on an overlay network."""
    endpoints: dict[str, Json] = field(default_factory=dict)
    load_balancers: dict[str, Json] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    fails: Callable[[str, str], int] = lambda _function, _settings: 0
    network_id: str = NETWORK_ID
    network_name: str = "Pods"
    """Of the one network; "" if there is none."""

    @property
    def networks(self) -> dict[str, Json]:
        if not self.network_name:
            return {}
        routes = [
            {"Type": "RemoteSubnetRoute", "Settings": {"DestinationPrefix": prefix, "ProviderAddress": node}}
            for prefix, node in self.subnets.items()
        ]
        document = {
            "ID": self.network_id.upper(),
            "Name": self.network_name,
            "Type": self.network_type,
            "Policies": routes,
        }
        return {self.network_id: document}

    def objects(self, kind: str) -> dict[str, Json]:
        return {"Network": self.networks, "Endpoint": self.endpoints, "LoadBalancer": self.load_balancers}[kind]

    def add_pod(self, address: str, *more: str, name: str = "") -> str:
        """The CNI plugin creates the endpoint of a Pod; its id."""
        made = str(uuid5(_CNI, address))
        configurations = [{"IpAddress": each, "PrefixLength": 24} for each in (address, *more)]
        self.endpoints[made] = {
            "ID": made.upper(),
            "Name": name,
            "HostComputeNetwork": self.network_id.upper(),
            "IpConfigurations": configurations,
        }
        return made

    def check(self, function: str, settings: str = "") -> None:
        if code := self.fails(function, settings):
            raise RefusalError(code, "The test lets this call fail.")

    def found(self, kind: str, name: str) -> Json:
        if name not in self.objects(kind):
            raise RefusalError(CODES[kind], f"The {kind} was not found.")
        return self.objects(kind)[name]

    def create(self, kind: str, name: str, settings: str, network: str = "") -> None:
        document = validated(kind, settings)
        if name in self.objects(kind):
            raise RefusalError(EXISTS, "Cannot create a file when that file already exists.")
        if document.get("ID", name).lower() != name:
            raise RefusalError(INVALID, "ID is not the GUID of the call.")
        if kind == "Endpoint":
            self._check_endpoint(document, network)
        else:
            self._check_load_balancer(name, document)
        self._note("Create", kind, name, settings)
        self.objects(kind)[name] = {"ID": name.upper(), **document}

    def modify(self, kind: str, name: str, settings: str) -> None:
        existing = self.found(kind, name)
        if kind == "Endpoint":
            document = validated("Modification", settings)
            if (document.get("ResourceType"), document.get("RequestType")) != ("Policy", "Update"):
                raise RefusalError(INVALID, "Only policies can be updated.")
            self._note("Modify", kind, name, settings)
            existing["Policies"] = document["Settings"]["Policies"]
            return
        if not self.modifies:
            raise RefusalError(NOT_IMPLEMENTED, "Not implemented")
        document = validated(kind, settings)
        self._check_load_balancer(name, document)
        self._note("Modify", kind, name, settings)
        self.load_balancers[name] = document

    def delete(self, kind: str, name: str) -> None:
        """HcnDeleteEndpoint, HcnDeleteLoadBalancer. An endpoint that a load balancer uses stays."""
        self.found(kind, name)
        if kind == "Endpoint" and any(name in _lower(load_balancer) for load_balancer in self.load_balancers.values()):
            raise RefusalError(IN_USE, "The endpoint is used by a load balancer.")
        self._note("Delete", kind, name, "")
        del self.objects(kind)[name]

    def _note(self, verb: str, kind: str, name: str, settings: str) -> None:
        self.requests.append(f"Hcn{verb}{kind} {name} {settings}".rstrip())

    def _check_endpoint(self, document: Json, network: str) -> None:
        if document.get("HostComputeNetwork", "").lower() != network:
            raise RefusalError(INVALID, "HostComputeNetwork is not the opened network.")
        (configuration,) = document.get("IpConfigurations") or [{}]
        address = _address(configuration.get("IpAddress"))
        existing = {
            ip_configuration["IpAddress"]
            for endpoint in self.endpoints.values()
            for ip_configuration in endpoint["IpConfigurations"]
        }
        if address in existing:
            raise RefusalError(EXISTS, f"{address} exists in the network.")
        is_remote = document.get("Flags", 0) == 1
        if document.get("Flags", 0) not in {0, 1} or not document.get("MacAddress"):
            raise RefusalError(INVALID, "Flags or MacAddress are invalid.")
        has_provider = [policy["Type"] for policy in document.get("Policies", ())] == ["ProviderAddress"]
        if is_remote and has_provider != (self.network_type == "Overlay"):
            raise RefusalError(INVALID, "Remote endpoints have a provider address on overlay networks only.")

    def _check_load_balancer(self, name: str, document: Json) -> None:
        endpoints = _lower(document)
        if not endpoints:
            raise RefusalError(INVALID, "HostComputeEndpoints is empty.")
        for endpoint in endpoints:
            self.found("Endpoint", endpoint)
        if len(set(endpoints)) < len(endpoints):
            raise RefusalError(INVALID, "An endpoint is listed twice.")
        if document.get("Flags", 0) not in LOAD_BALANCER_FLAGS:
            raise RefusalError(INVALID, "Flags are invalid.")
        families = {_address(vip).count(":") > 0 for vip in document.get("FrontendVIPs", ())}
        if families - {bool(document.get("Flags", 0) & 2)}:
            raise RefusalError(INVALID, "The flag IPv6 is not that of the VIPs.")
        if document.get("SourceVIP"):
            _address(document["SourceVIP"])
        (mapping,) = document.get("PortMappings") or [{}]
        for port in ("InternalPort", "ExternalPort"):
            if mapping.get(port, 0) not in range(1, 65536):
                raise RefusalError(INVALID, f"{port} is invalid.")
        if mapping.get("Protocol") not in PROTOCOLS.values():
            raise RefusalError(INVALID, "Protocol is neither TCP nor UDP.")
        if mapping.get("Flags", 0) not in MAPPING_FLAGS or mapping.get("DistributionType", 0) not in DISTRIBUTIONS:
            raise RefusalError(INVALID, "Flags or DistributionType are invalid.")
        taken = {key for other, each in self.load_balancers.items() if other != name for key in keys(each)}
        if taken & set(keys(document)):
            raise RefusalError(PORT_EXISTS, "The specified port already exists.")

    def answer(self, destination: str, protocol: str, port: int, own: Iterable[str]) -> Answer | None:
        """What a packet to this destination gets on a node with these addresses; None: no load balancer has it."""
        is_ipv6 = ":" in destination
        number = PROTOCOLS.get(protocol, 0)
        for vip in (destination, *([""] if destination in own else [])):
            for load_balancer in self.load_balancers.values():
                if (is_ipv6, vip, number, port) in keys(load_balancer):
                    (mapping,) = load_balancer["PortMappings"]
                    ends = [self._address_of(name, is_ipv6=is_ipv6) for name in _lower(load_balancer)]
                    is_dsr = bool(load_balancer.get("Flags", 0) & 1)
                    keeps = mapping.get("DistributionType", 0) == 2
                    return Answer(frozenset(ends), mapping["InternalPort"], not is_dsr, keeps)
        return None

    def _address_of(self, name: str, *, is_ipv6: bool) -> str:
        addresses = (ip_configuration["IpAddress"] for ip_configuration in self.endpoints[name]["IpConfigurations"])
        return next(str(address) for address in addresses if (":" in address) == is_ipv6)


def keys(document: Json) -> list[tuple[bool, str, int, int]]:
    """The destinations of a load balancer: whether it is of IPv6, VIP, protocol and port."""
    is_ipv6 = bool(document.get("Flags", 0) & 2)
    return [
        (is_ipv6, vip, mapping["Protocol"], mapping["ExternalPort"])
        for vip in document.get("FrontendVIPs") or [""]
        for mapping in document["PortMappings"]
    ]


def validated(kind: str, text: str) -> Json:
    """A document of this kind; RefusalError for another one."""
    try:
        document = json.loads(text)
    except ValueError as error:
        raise RefusalError(INVALID, "The settings are not JSON.") from error
    _check(document, SCHEMA[kind], kind)
    if "SchemaVersion" in SCHEMA[kind] and document.get("SchemaVersion", {}).get("Major") != 2:
        raise RefusalError(INVALID, "SchemaVersion is not 2.0.")
    found: Json = document
    return found


def _check(value: object, wanted: object, path: str) -> None:
    match wanted:
        case dict():
            if not isinstance(value, dict) or value.keys() - wanted.keys():
                raise RefusalError(INVALID, f"{path} has fields that the schema does not have.")
            for name, each in value.items():
                _check(each, wanted[name], f"{path}.{name}")
        case [item]:
            if not isinstance(value, list):
                raise RefusalError(INVALID, f"{path} is not a list.")
            for each in value:
                _check(each, item, path)
        case type():
            if type(value) is not wanted:
                raise RefusalError(INVALID, f"{path} is not of type {wanted.__name__}.")


def _address(text: object) -> str:
    try:
        return str(ip_address(str(text)))
    except ValueError as error:
        raise RefusalError(INVALID, f"{text} is not an address.") from error


def _lower(document: Json) -> list[str]:
    return [str(hostcomputeendpoint).lower() for hostcomputeendpoint in document.get("HostComputeEndpoints", ())]


class FakeLibraries:
    """The functions of the service as ctypes calls them. Every buffer is to be freed, and every handle closed."""

    def __init__(self, service: FakeHcn) -> None:
        self.service = service
        self.buffers: dict[int, object] = {}
        self.handles: dict[int, tuple[str, str]] = {}
        self._last_handle = 0
        self.functions: Libraries = {name: self._function(name) for name in SIGNATURES} | {
            "CoTaskMemFree": lambda buffer: self.buffers.pop(buffer.value)
        }

    def _function(self, name: str) -> Callable[..., Any]:
        prototype = ctypes.CFUNCTYPE(ctypes.c_int32, *SIGNATURES[name])

        def called(*arguments: Any) -> int:
            *given, last = arguments
            try:
                self._call(name, given, last)
            except RefusalError as error:
                if not name.startswith("HcnClose"):
                    record = {"Success": False, "Error": f"{error} ", "ErrorCode": error.code}
                    self._write(last, json.dumps(record))
                return ctypes.c_int32(error.code).value
            return 0

        return prototype(called)

    def _call(self, name: str, given: list[Any], last: Any) -> None:
        if name == "HNSCall":
            assert given == ["GET", "/globals/version", ""]
            major, minor = self.service.version
            self._write(last, json.dumps({"Success": True, "Output": {"Major": major, "Minor": minor}}))
            return
        verb, kind = _parts(name)
        if verb == "Close":
            assert self.handles.pop(last)[0] == kind
            return
        self.service.check(name, next((each for each in given if isinstance(each, str)), ""))
        match verb, given:
            case "Enumerate", [query, out]:
                validated("Query", query)
                self._write(out, json.dumps([obj.upper() for obj in self.service.objects(kind)]))
            case "Open", [guid, out]:
                self._open(kind, _guid(guid), out)
            case "Query", [handle, query, out]:
                validated("Query", query)
                self._write(out, json.dumps(self.service.found(*self.handles[handle])))
            case "Create", [network, guid, settings, out]:
                self.service.create(kind, _guid(guid), settings, self.handles[network][1])
                self._open(kind, _guid(guid), out)
            case "Create", [guid, settings, out]:
                self.service.create(kind, _guid(guid), settings)
                self._open(kind, _guid(guid), out)
            case "Modify", [handle, settings]:
                self.service.modify(*self.handles[handle], settings)
            case "Delete", [guid]:
                self.service.delete(kind, _guid(guid))
            case _:
                raise AssertionError(name, given)

    def _open(self, kind: str, name: str, out: int) -> None:
        self.service.found(kind, name)
        self._last_handle += 1
        self.handles[self._last_handle] = kind, name
        ctypes.c_void_p.from_address(out).value = self._last_handle

    def _write(self, out: int, text: str) -> None:
        buffer = ctypes.create_unicode_buffer(text)
        self.buffers[ctypes.addressof(buffer)] = buffer
        ctypes.c_void_p.from_address(out).value = ctypes.addressof(buffer)


def _parts(name: str) -> tuple[str, str]:
    rest = name.removeprefix("Hcn").removesuffix("Properties")
    verb = next(
        each for each in ("Enumerate", "Open", "Query", "Create", "Modify", "Delete", "Close") if rest.startswith(each)
    )
    return verb, rest.removeprefix(verb).removesuffix("s" if verb == "Enumerate" else "")


def _guid(address: int) -> str:
    return str(UUID(bytes_le=ctypes.string_at(address, 16)))
