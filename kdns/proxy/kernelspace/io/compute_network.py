"""HCN's functions of computenetwork.dll, through ctypes. All of it blocks.

Each call returns an HRESULT, and on failure an error record: a JSON document with the reason. Buffers that a call
returns are freed by CoTaskMemFree. The version is asked of the older interface, HNSCall of vmcompute.dll, as hcsshim
does (hcn/hcnglobals.go): HCN has no function for it.
"""

from __future__ import annotations

import ctypes
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeAlias
from uuid import UUID

from kdns.errors import ApplyError
from kdns.proxy.kernelspace.requests import Request, Verb
from kdns.proxy.kernelspace.schema import (
    SCHEMA_VERSION,
    HostComputeEndpoint,
    HostComputeLoadBalancer,
    HostComputeNetwork,
    Json,
)

NOT_IMPLEMENTED: Final = 0x80004001
NOT_FOUND: Final = frozenset({0x80070490, 0x803B0001, 0x803B0002, 0x803B0008})
"""ERROR_NOT_FOUND, and HCN's codes of a network, an endpoint and a policy that do not exist (winerror.h)."""
OF_CONTENT: Final = frozenset({0x80070057, 0x803B000D, 0x803B0013})
"""E_INVALIDARG, HCN_E_INVALID_POLICY and HCN_E_PORT_ALREADY_EXISTS: the request is refused whenever it is sent."""
_MODIFIABLE: Final = (15, 4)
"""The first version that modifies load balancers (hcsshim, hcn/hcnglobals.go)."""
_MASK: Final = 0xFFFFFFFF


class HcnError(ApplyError):
    """A call that HCN refused: the function, the reason, and the HRESULT as `code`."""

    def __init__(self, function: str, code: int, reason: str) -> None:
        self.code = code
        super().__init__((function,), f"{reason} (0x{code:08X})")


Libraries: TypeAlias = Mapping[str, Callable[..., Any]]
"""The functions of computenetwork.dll, HNSCall of vmcompute.dll and CoTaskMemFree, by their names."""


class ComputeNetwork:
    """HCN on this machine. One thread at a time uses it."""

    def __init__(self, libraries: Libraries) -> None:
        self._libraries = libraries
        self._can_modify: bool | None = None

    def version(self) -> tuple[int, int]:
        buffer = ctypes.c_void_p()
        _check("HNSCall", self._libraries["HNSCall"]("GET", "/globals/version", "", ctypes.byref(buffer)), "")
        answer = json.loads(self._taken(buffer) or "{}")
        if not answer.get("Success"):
            raise ApplyError(("HNSCall",), str(answer.get("Error", "no answer")))
        found = answer.get("Output") or {}
        return int(found.get("Major", 0)), int(found.get("Minor", 0))

    def network(self, name: str) -> HostComputeNetwork:
        """ApplyError if there is no network of this name."""
        found = self.networks()
        for network in found:
            if network.name.lower() == name.lower():
                return network
        names = [network.name for network in found]
        raise ApplyError(("HcnEnumerateNetworks",), f"there is no network {name}; expected one of {names}")

    def networks(self) -> tuple[HostComputeNetwork, ...]:
        return tuple(HostComputeNetwork.read(document) for document in self._documents("Network", {}))

    def endpoints(self, network: str) -> tuple[HostComputeEndpoint, ...]:
        documents = self._documents("Endpoint", {"VirtualNetwork": network})
        found = (HostComputeEndpoint.read(endpoint) for endpoint in documents)
        return tuple(endpoint for endpoint in found if endpoint.network in {"", network})

    def load_balancers(self) -> tuple[HostComputeLoadBalancer, ...]:
        return tuple(HostComputeLoadBalancer.read(document) for document in self._documents("LoadBalancer", {}))

    def ids(self, kind: str) -> frozenset[str]:
        return frozenset(self._enumerated(kind, {}))

    def carry_out(self, request: Request) -> None:
        """Carries out a request. Deleting what does not exist succeeds.

        A load balancer that the service cannot modify is deleted and created again.
        """
        match request.verb:
            case Verb.CREATE:
                self._create(request)
            case Verb.DELETE:
                self._delete(request)
            case Verb.MODIFY if isinstance(request.object, HostComputeLoadBalancer) and not self._modifies:
                self._replace(request)
            case Verb.MODIFY:
                self._modify(request)

    @property
    def _modifies(self) -> bool:
        if self._can_modify is None:
            self._can_modify = self.version() >= _MODIFIABLE
        return self._can_modify

    def _create(self, request: Request) -> None:
        handle = ctypes.c_void_p()
        arguments = (_guid(request.object.id), request.settings, ctypes.byref(handle))
        if isinstance(request.object, HostComputeEndpoint):
            with self._opened("Network", request.object.network) as network:
                self._call(request.function, network, *arguments)
        else:
            self._call(request.function, *arguments)
        self._close(request.object.KIND, handle)

    def _delete(self, request: Request) -> None:
        try:
            self._call(f"HcnDelete{request.object.KIND}", _guid(request.object.id))
        except HcnError as error:
            if error.code not in NOT_FOUND:
                raise

    def _modify(self, request: Request) -> None:
        try:
            with self._opened(request.object.KIND, request.object.id) as handle:
                self._call(request.function, handle, request.settings)
        except HcnError as error:
            if error.code != NOT_IMPLEMENTED or isinstance(request.object, HostComputeEndpoint):
                raise
            self._can_modify = False
            self._replace(request)

    def _replace(self, request: Request) -> None:
        self._delete(request)
        self._create(Request(Verb.CREATE, request.object))

    def _documents(self, kind: str, filters: Json) -> Iterator[Json]:
        """Properties of the objects of a kind, without objects that are deleted meanwhile."""
        for name in self._enumerated(kind, filters):
            try:
                with self._opened(kind, name) as handle:
                    buffer = ctypes.c_void_p()
                    self._call(f"HcnQuery{kind}Properties", handle, _query({}), ctypes.byref(buffer))
                    text = self._taken(buffer)
            except HcnError as error:
                if error.code not in NOT_FOUND:
                    raise
                continue
            yield json.loads(text)

    def _enumerated(self, kind: str, filters: Json) -> list[str]:
        buffer = ctypes.c_void_p()
        self._call(f"HcnEnumerate{kind}s", _query(filters), ctypes.byref(buffer))
        return [str(name).lower() for name in json.loads(self._taken(buffer) or "[]")]

    @contextmanager
    def _opened(self, kind: str, name: str) -> Iterator[ctypes.c_void_p]:
        handle = ctypes.c_void_p()
        self._call(f"HcnOpen{kind}", _guid(name), ctypes.byref(handle))
        try:
            yield handle
        finally:
            self._close(kind, handle)

    def _close(self, kind: str, handle: ctypes.c_void_p) -> None:
        function = f"HcnClose{kind}"
        _check(function, self._libraries[function](handle), "")

    def _call(self, function: str, *arguments: object) -> None:
        """Calls a function whose last parameter receives the error record. Raises HcnError."""
        record = ctypes.c_void_p()
        code = self._libraries[function](*arguments, ctypes.byref(record))
        _check(function, code, self._taken(record))

    def _taken(self, buffer: ctypes.c_void_p) -> str:
        """The text of a buffer that a call returned; frees the buffer."""
        if not buffer.value:
            return ""
        text = ctypes.wstring_at(buffer.value)
        self._libraries["CoTaskMemFree"](buffer)
        return text


def _check(function: str, code: int, record: str) -> None:
    if code >= 0:
        return
    reason = record
    if record.startswith("{"):
        document = json.loads(record)
        reason = str(document.get("Error") or record)
    raise HcnError(function, code & _MASK, reason.strip() or "failed without an error record")


def _guid(text: str) -> ctypes.Array[ctypes.c_char]:
    """A GUID in memory that is passed by its address."""
    return ctypes.create_string_buffer(UUID(text).bytes_le, 16)


def _query(filters: Json) -> str:
    return json.dumps({"SchemaVersion": SCHEMA_VERSION, **({"Filter": json.dumps(filters)} if filters else {})})


_TEXT, _OUT, _HANDLE, _GUID = ctypes.c_wchar_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p
SIGNATURES: Final[dict[str, Sequence[Any]]] = {
    "HNSCall": (_TEXT, _TEXT, _TEXT, _OUT),
    "HcnCreateEndpoint": (_HANDLE, _GUID, _TEXT, _OUT, _OUT),
    "HcnCreateLoadBalancer": (_GUID, _TEXT, _OUT, _OUT),
    **{f"HcnClose{kind}": (_HANDLE,) for kind in ("Network", "Endpoint", "LoadBalancer")},
    **{f"HcnDelete{kind}": (_GUID, _OUT) for kind in ("Endpoint", "LoadBalancer")},
    **{f"HcnEnumerate{kind}s": (_TEXT, _OUT, _OUT) for kind in ("Network", "Endpoint", "LoadBalancer")},
    **{f"HcnModify{kind}": (_HANDLE, _TEXT, _OUT) for kind in ("Endpoint", "LoadBalancer")},
    **{f"HcnOpen{kind}": (_GUID, _OUT, _OUT) for kind in ("Network", "Endpoint", "LoadBalancer")},
    **{f"HcnQuery{kind}Properties": (_HANDLE, _TEXT, _OUT, _OUT) for kind in ("Network", "Endpoint", "LoadBalancer")},
}
"""The types of the parameters; each function returns an HRESULT of 32 bits (ComputeNetwork.h)."""
