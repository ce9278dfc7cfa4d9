"""A Kubernetes API with faults on demand: `Cluster` remembers objects and history, `FakeApi` serves it over HTTP."""

import asyncio
import json
import socket
import ssl
import weakref
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from kdns.cluster.objects import EndpointSlice, Key, Namespace, Object, Pod, Service
from kdns.cluster.state import State
from kdns.errors import ApiServerError

Json = dict[str, Any]
PATHS = {
    "/api/v1/namespaces": "namespaces",
    "/api/v1/services": "services",
    "/api/v1/pods": "pods",
    "/apis/discovery.k8s.io/v1/endpointslices": "endpointslices",
    "/apis/multicluster.x-k8s.io/v1alpha1/serviceimports": "serviceimports",
}
TYPES = {
    "namespaces": {"kind": "Namespace", "apiVersion": "v1"},
    "services": {"kind": "Service", "apiVersion": "v1"},
    "pods": {"kind": "Pod", "apiVersion": "v1"},
    "endpointslices": {"kind": "EndpointSlice", "apiVersion": "discovery.k8s.io/v1"},
    "serviceimports": {"kind": "ServiceImport", "apiVersion": "multicluster.x-k8s.io/v1alpha1"},
}


def held_port() -> socket.socket:
    """A socket that keeps a port of loopback for whoever listens there later, and again after a while."""
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind(("127.0.0.1", 0))
    return held


class RefusedError(Exception):
    def __init__(self, code: int, reason: str, message: str, headers: dict[str, str] | None = None) -> None:
        self.code, self.reason, self.message, self.headers = code, reason, message, headers or {}
        super().__init__(message)

    @property
    def status(self) -> Json:
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "code": self.code,
            "reason": self.reason,
            "message": self.message,
        }


INITIAL_EVENTS = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true"}


def no_initial_events() -> RefusedError:
    """What kube-apiserver says with the feature gate WatchList off."""
    return RefusedError(422, "Invalid", "sendInitialEvents is forbidden for watch")


def refuse_initial_events(params: Mapping[str, str]) -> None:
    """Refuses a watch that is to begin with all objects."""
    if "sendInitialEvents" in params:
        raise ApiServerError("http://api", no_initial_events().message, 422)


def initial_end(kind: str, version: int) -> Json:
    """The bookmark after the initial events."""
    annotations = {"k8s.io/initial-events-end": "true"}
    metadata = {"resourceVersion": str(version), "annotations": annotations}
    return {"type": "BOOKMARK", "object": TYPES[kind] | {"metadata": metadata}}


def expired() -> RefusedError:
    return RefusedError(410, "Expired", "too old resource version")


def meta(name: str, namespace: str = "") -> Json:
    return {"metadata": {"name": name, "namespace": namespace} if namespace else {"name": name}}


def service(name: str, address: str = "10.96.0.9", namespace: str = "default") -> Json:
    spec = {"clusterIP": address, "clusterIPs": [address], "ports": [{"port": 80, "protocol": "TCP"}]}
    return meta(name, namespace) | {"spec": spec}


def endpoint_slice(name: str, address: str = "10.244.0.9", namespace: str = "default") -> Json:
    one = meta(name, namespace) | {"addressType": "IPv4", "endpoints": [{"addresses": [address]}], "ports": None}
    one["metadata"]["labels"] = {"kubernetes.io/service-name": name}
    return one


def key_of(obj: Json) -> Key:
    return obj["metadata"].get("namespace", ""), obj["metadata"]["name"]


@dataclass
class Cluster:
    """Objects by kind and key, one revision for all, and the events since `compacted`."""

    version: int = 100
    compacted: int = 0
    objects: dict[str, dict[Key, Json]] = field(default_factory=lambda: defaultdict(dict))
    history: list[tuple[int, str, Json]] = field(default_factory=list)
    snapshots: dict[str, list[Json]] = field(default_factory=dict)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def put(self, plural: str, obj: Json) -> None:
        key = key_of(obj)
        self._record(plural, "MODIFIED" if key in self.objects[plural] else "ADDED", obj)
        self.objects[plural][key] = obj

    def delete(self, plural: str, key: Key) -> None:
        if obj := self.objects[plural].pop(key, None):
            self._record(plural, "DELETED", obj)

    def _record(self, plural: str, what: str, obj: Json) -> None:
        self.version += 1
        obj["metadata"] = obj["metadata"] | {"resourceVersion": str(self.version)}
        self.history.append(
            (self.version, plural, {"type": what, "object": TYPES[plural] | json.loads(json.dumps(obj))})
        )
        self.wake()

    def wake(self) -> None:
        self.changed.set()
        self.changed = asyncio.Event()

    def compact(self) -> None:
        """Forget the history, and with it where paged lists were."""
        self.compacted = self.version
        self.history.clear()
        self.snapshots.clear()

    def page(self, plural: str, params: Json) -> Json:
        limit = int(params.get("limit") or 0)
        token = params.get("continue", "")
        if token and token not in self.snapshots:
            raise expired()
        version, _, _ = token.partition(":")
        rest = self.snapshots[token] if token else sorted(self.objects[plural].values(), key=key_of)
        version = version or str(self.version)
        following = f"{version}:{plural}:{len(rest) - limit}" if limit and len(rest) > limit else ""
        if following:
            self.snapshots[following] = rest[limit:]
        items = rest[: limit or None]
        list_type = TYPES[plural] | {"kind": f"{TYPES[plural]['kind']}List"}
        return list_type | {"metadata": {"resourceVersion": version, "continue": following}, "items": items or None}

    def initial_events(self, plural: str) -> Iterator[tuple[int, Json]]:
        """All objects, and the bookmark after them."""
        for obj in sorted(self.objects[plural].values(), key=key_of):
            yield int(obj["metadata"]["resourceVersion"]), {"type": "ADDED", "object": TYPES[plural] | obj}
        yield self.version, initial_end(plural, self.version)

    def events(self, plural: str, after: int) -> Iterator[tuple[int, Json]]:
        if after < self.compacted:
            raise expired()
        for version, kind, event in self.history:
            if kind == plural and version > after:
                yield version, event

    def holds(self, state: State) -> bool:
        """Whether `state` has exactly the cluster's objects, by key and address, of the kinds it has been told of."""
        known: dict[type[Object], tuple[str, dict[Key, str]]] = {
            Service: ("services", {key: one.spec.cluster_ip for key, one in state.services.items()}),
            EndpointSlice: ("endpointslices", {key: slice_address(one) for key, one in state.slices.items()}),
            Namespace: ("namespaces", dict.fromkeys(state.namespaces, "")),
            Pod: ("pods", dict.fromkeys(state.pods, "")),
        }
        return bool(state.synced) and all(
            {key: address_of(obj) for key, obj in self.objects[known[kind][0]].items()} == known[kind][1]
            for kind in state.synced
        )


def slice_address(one: EndpointSlice) -> str:
    return next(iter(one.endpoints or ())).addresses[0]


def address_of(obj: Json) -> str:
    endpoints = obj.get("endpoints")
    return str(endpoints[0]["addresses"][0] if endpoints else obj.get("spec", {}).get("clusterIP", ""))


def line(event: Json) -> bytes:
    return json.dumps(event).encode() + b"\n"


@dataclass
class FakeApi:
    """`refuse[verb, plural]` holds the faults of the next answers, bytes for a body that is nonsense.

    Its port stays its own while it is stopped.
    """

    cluster: Cluster = field(default_factory=Cluster)
    tls: ssl.SSLContext | None = None
    accepts: Callable[[str], bool] = lambda _authorization: True
    port: int = field(init=False)
    silent: bool = False  # watches stay open and tell nothing
    requests: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    refuse: dict[tuple[str, str], deque[RefusedError | bytes]] = field(default_factory=lambda: defaultdict(deque))
    refuse_always: dict[tuple[str, str], RefusedError | bytes] = field(default_factory=dict)
    watching: dict[str, set[web.StreamResponse]] = field(default_factory=lambda: defaultdict(set))
    wait_for: int = 0  # lists are answered when so many are asked at once
    at_once: int = 0
    most_at_once: int = 0
    _full: asyncio.Event = field(default_factory=asyncio.Event)
    _runner: web.AppRunner | None = None

    @property
    def url(self) -> str:
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self.port}"

    def __post_init__(self) -> None:
        held = held_port()
        self.port = held.getsockname()[1]
        weakref.finalize(self, held.close)

    async def start(self) -> None:
        app = web.Application()
        app.router.add_get("/{path:.*}", self._answer)
        self._runner = web.AppRunner(app, shutdown_timeout=0, handler_cancellation=True)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port, ssl_context=self.tls, reuse_address=True)
        await site.start()

    async def stop(self) -> None:
        """Drop every connection and listen no more, like a killed process."""
        self.drop()
        if self._runner:
            await self._runner.cleanup()
            self._runner = None

    def drop(self) -> None:
        for response in [stream for streams in self.watching.values() for stream in streams]:
            transport = response._req.transport if response._req else None  # noqa: SLF001 - aiohttp has no other way
            if transport:
                transport.abort()

    async def send(self, plural: str, raw: bytes) -> None:
        """Write raw bytes into every open watch of a kind."""
        for response in list(self.watching[plural]):
            await response.write(raw)

    def lists(self, plural: str) -> int:
        """Full lists, by their first page; a page of one object only asks for the version."""
        return sum(
            (verb, kind) == ("list", plural) and "continue" not in params and params.get("limit") != "1"
            for verb, kind, params in self.requests
        )

    def watches(self, plural: str) -> int:
        return sum(1 for verb, kind, _ in self.requests if (verb, kind) == ("watch", plural))

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        plural = PATHS.get(request.path, "")
        verb = "watch" if "watch" in request.query else "list"
        verb = "stream" if "sendInitialEvents" in request.query else verb
        self.requests.append((verb, plural, dict(request.query)))
        self.headers.append(dict(request.headers))
        try:
            fault = self._fault(verb, plural, request.headers.get("Authorization", ""))
            if fault is not None:
                return web.Response(body=fault, content_type="application/json")
            if verb == "list":
                await self._gathered()
                return web.json_response(self.cluster.page(plural, dict(request.query)))
            if verb == "stream":
                raise no_initial_events()
            list(self.cluster.events(plural, int(request.query["resourceVersion"])))
        except RefusedError as refused:
            return web.json_response(refused.status, status=refused.code, headers=refused.headers)
        return await self._watch(request, plural)

    async def _gathered(self) -> None:
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        if self.at_once >= self.wait_for:
            self._full.set()
        await self._full.wait()
        await asyncio.sleep(0)
        self.at_once -= 1

    def _fault(self, verb: str, plural: str, authorization: str) -> bytes | None:
        if not self.accepts(authorization):
            raise RefusedError(401, "Unauthorized", "Unauthorized")
        if not plural:
            raise RefusedError(404, "NotFound", "the server could not find the requested resource")
        queued = self.refuse[verb, plural]
        fault = queued.popleft() if queued else self.refuse_always.get((verb, plural))
        if isinstance(fault, RefusedError):
            raise fault
        return fault

    async def _watch(self, request: web.Request, plural: str) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        self.watching[plural].add(response)
        at = int(request.query["resourceVersion"])
        try:
            while True:
                changed = self.cluster.changed
                if not self.silent:
                    for version, event in list(self.cluster.events(plural, at)):
                        await response.write(line(event))
                        at = version
                await changed.wait()
        except RefusedError as refused:
            await response.write(line({"type": "ERROR", "object": refused.status}))
        finally:
            self.watching[plural].discard(response)
        return response


@asynccontextmanager
async def answering(responses: Mapping[str, Json | int | str]) -> AsyncIterator[str]:
    """The URL of a server with a body for each path, or path and continue token; a number is a status, as of others."""

    async def answer(request: web.Request) -> web.Response:
        token = request.query.get("continue")
        match responses.get(f"{request.path} {token}" if token else request.path, 404):
            case int(status):
                return web.json_response({"kind": "Status", "code": status, "message": "no"}, status=status)
            case str(text):
                return web.Response(text=text)
            case body:
                return web.json_response(body)

    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def until(condition: Callable[[], bool], *, within_s: float = 60.0) -> None:
    """Poll until true; the assertion's message is the condition's source line in the traceback."""
    deadline_s = asyncio.get_running_loop().time() + within_s
    while not condition():
        assert asyncio.get_running_loop().time() < deadline_s, "not within the deadline"
        await asyncio.sleep(0.005)
