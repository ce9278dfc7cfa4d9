"""Requests on resources: the HTTP method and query parameters select a verb of the registry."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from math import inf
from random import uniform
from weakref import WeakKeyDictionary

from aiohttp import web

from kdns.controlplane.apimachinery.errors import StatusError, bad_request, method_not_allowed
from kdns.controlplane.apimachinery.field_errors import expected
from kdns.controlplane.apimachinery.kinds import Json, Kind
from kdns.controlplane.apimachinery.size import check_size
from kdns.controlplane.gc.deletion import checked_policy
from kdns.controlplane.kinds.strategy import DeleteStrategy
from kdns.controlplane.schema import check
from kdns.controlplane.schema.field_validation import FieldValidator, Policy
from kdns.controlplane.schema.serialization import Serialized, read
from kdns.controlplane.server import representation
from kdns.controlplane.server.access import Reviewer, User
from kdns.controlplane.server.discovery import SUBRESOURCE_VERBS
from kdns.controlplane.server.io import watch
from kdns.controlplane.server.io.authentication import RestConfig
from kdns.controlplane.server.io.request import ResourceRequest, decoded, read_body
from kdns.controlplane.server.io.response import add_warnings, object_response, response_to, send
from kdns.controlplane.server.io.watch import WatchStream
from kdns.controlplane.server.patch import APPLY_PATCH, JSON_PATCH, patch_types
from kdns.controlplane.server.registry import Registry, Request
from kdns.controlplane.server.subresources import POSTS
from kdns.controlplane.storage import listing
from kdns.controlplane.storage.listing import ListResult
from kdns.controlplane.storage.store import StoredObject, Subscription
from kdns.runtime.http.server import HttpConnection, connection_of

_SUBRESOURCE_VERBS = {"GET": "get", "HEAD": "get", "PUT": "update", "PATCH": "patch", "POST": "create"}
_LARGE_BYTES = 32 * 1024
"""Responses from this size on are sent in pieces."""

UNSENT_BYTES_MAX = 256 * 1024 * 1024
"""Of large responses together, until their clients have read them."""
_WRITES = frozenset({"POST", "PUT", "PATCH", "DELETE"})
_WARNED = frozenset({"POST", "PUT", "PATCH"})


@dataclass(slots=True)
class Verbs:
    """The HTTP methods on resources. `durable` returns when everything committed so far is on disk."""

    registry: Registry
    config: RestConfig
    durable: Callable[[], Awaitable[None]]
    watches: dict[Subscription, None]
    unsent_bytes: int = 0
    _inert_kinds_seen: WeakKeyDictionary[HttpConnection, set[Kind]] = field(default_factory=WeakKeyDictionary)

    async def run(self, request: web.BaseRequest, target: Request, user: User) -> web.StreamResponse:
        call = ResourceRequest(request, target, user, self.registry.kinds)
        if target.kind.is_review:
            return await self._review(call)
        method = _METHODS.get((request.method, bool(target.name)))
        has_scope = target.name or target.namespace or not target.kind.namespaced
        if method is None or (request.method in {"POST", "DELETE"} and not has_scope):
            raise method_not_allowed()
        if method is Verbs.delete_collection and not self.registry.kinds[target.kind].delete.collection:
            raise method_not_allowed()
        if request.method == "POST" and bool(target.name) != bool(target.subresource):
            raise method_not_allowed()
        if target.subresource and _SUBRESOURCE_VERBS.get(request.method) not in SUBRESOURCE_VERBS[target.subresource]:
            raise method_not_allowed()
        if call.watches:
            return await self._watch(call)
        if request.method in _WRITES:
            _ = call.renderer  # 406 comes before the write
        response = await method(self, call)
        await self.durable()
        if deprecation := (target.served_version or target.kind).deprecation:
            add_warnings(response, [deprecation])
        if isinstance(response, web.Response) and request.method != "HEAD":
            await self._send(request, response)
        return response

    async def _send(self, request: web.BaseRequest, response: web.Response) -> None:
        """Sends a large response. Raises 429 for a GET if too many bytes of other responses are unread."""
        body = response.body
        if not isinstance(body, bytes) or len(body) < _LARGE_BYTES:
            return
        if request.method == "GET" and self.unsent_bytes and self.unsent_bytes + len(body) > UNSENT_BYTES_MAX:
            raise StatusError(
                429, "TooManyRequests", "too many large responses are unread, try again later", {"retryAfterSeconds": 1}
            )
        self.unsent_bytes += len(body)
        try:
            await send(request, response, body)
        finally:
            self.unsent_bytes -= len(body)

    async def get(self, call: ResourceRequest) -> web.StreamResponse:
        listing.check_present(self.registry.store, call.text("resourceVersion"))
        _ = call.renderer  # 406 comes first
        return self._object(call, self.registry.shown(call.target))

    async def list_(self, call: ResourceRequest) -> web.StreamResponse:
        _ = call.renderer  # 406 comes first
        return self._page(call, self.registry.list(call.target, call.list_options))

    def _page(self, call: ResourceRequest, listed: ListResult) -> web.Response:
        renderer = call.renderer
        return response_to(call.request, renderer.list_body(listed, self.registry.now_s()), shape=renderer.shape)

    async def create(self, call: ResourceRequest) -> web.StreamResponse:
        request = call.write()
        obj, warnings = await _checked(call, request.policy)
        return self._object(call, self.registry.create(request, obj), warnings, 201)

    async def post(self, call: ResourceRequest) -> web.StreamResponse:
        """POST on a subresource such as pods/eviction; the response is a Status."""
        request = call.write()
        obj, warnings = await _checked(call, request.policy)
        POSTS[request.subresource](self.registry, request, obj)
        status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}
        return object_response(call.request, status, status=201, warnings=warnings)

    async def _review(self, call: ResourceRequest) -> web.StreamResponse:
        if call.request.method != "POST":
            raise method_not_allowed()
        _ = call.renderer  # 406 comes first
        request = call.write()
        review, warnings = await _checked(call, request.policy)
        audience = f"https://kubernetes.default.svc.{self.registry.config.cluster_domain}"
        reviewer = Reviewer(self.config.user_of, audience)
        answered = reviewer.answered(request.kind, request.key[0], review, call.user, self.registry.now_s())
        body, shape = representation.encoded(answered), call.renderer.shape
        return response_to(call.request, body, status=201, shape=shape, warnings=warnings)

    async def update(self, call: ResourceRequest) -> web.StreamResponse:
        """PUT on an object: 201 if it creates the object."""
        request = call.write()
        obj, warnings = await _checked(call, request.policy)
        status = 200 if self._exists(request) else 201
        return self._object(call, self.registry.update(request, obj), warnings, status)

    async def patch(self, call: ResourceRequest) -> web.StreamResponse:
        """PATCH on an object; server-side apply may create it."""
        request = call.write()
        if call.media_type != APPLY_PATCH and call.media_type not in (supported := patch_types(call.kind)):
            raise _unsupported_patch(supported)
        body = await call.body(strictly=request.policy != "Ignore")
        in_json_patch = tuple(f"json patch {duplicate}" for duplicate in body.duplicates)
        duplicates = in_json_patch if call.media_type == JSON_PATCH else body.duplicates

        if call.media_type == APPLY_PATCH:
            validator = FieldValidator(request.kind, request.policy, body.duplicates)
            status = 200 if self._exists(request) else 201
            applied = self.registry.apply(request, body.obj, validator)
            return self._object(call, applied, validator.warnings, status)
        validator = FieldValidator(call.kind, request.policy, duplicates, is_patch=True)
        changed = self.registry.patch(request, call.media_type, body.value, validator)
        return self._object(call, changed, validator.warnings)

    def _exists(self, request: Request) -> bool:
        return self.registry.store.get(request.kind, request.key) is not None

    async def delete(self, call: ResourceRequest) -> web.StreamResponse:
        options = await self._delete_options(call)
        request, strategy = call.deletion(options), self.registry.kinds[call.target.kind].delete
        last = self.registry.delete(request, options)
        warnings, remains = _deletion_warnings(strategy, options), self._exists(request)
        if strategy.returns_object or last.metadata.get("deletionTimestamp") or (remains and not request.dry_run):
            return self._object(call, last, warnings)
        body = representation.encoded(representation.deleted(call.kind, last.metadata))
        return response_to(call.request, body, shape=call.renderer.shape, warnings=warnings)

    async def delete_collection(self, call: ResourceRequest) -> web.StreamResponse:
        options = await self._delete_options(call)
        request = call.deletion(options)
        listed = self.registry.list(call.target, call.list_options)
        self.registry.delete_all(request, listed.stored, options)
        response = self._page(call, listed)
        add_warnings(response, _deletion_warnings(self.registry.kinds[request.kind].delete, options))
        return response

    async def _watch(self, call: ResourceRequest) -> web.StreamResponse:
        if len(self.watches) >= self.config.watches_max:
            raise StatusError(429, "TooManyRequests", f"no more than {self.config.watches_max} watches at a time")
        options, renderer = call.list_options, call.renderer
        bookmarks = bool(call.flag("allowWatchBookmarks"))
        timeout_s = call.number("timeoutSeconds") or self.config.watch_timeout_s * uniform(0.6, 1.2)
        try:
            subscription = self.registry.watch(call.target, options)
        except StatusError as error:
            if error.code != 410:
                raise
            return await watch.refused(call.request, error)
        self.watches[subscription] = None
        try:
            response = await watch.started(call.request, call.kind.deprecation)
            interval_s = self.config.bookmark_interval_s if bookmarks else inf
            stream = WatchStream(subscription, renderer, self.registry, self.durable, timeout_s, interval_s)
            initial = options.send_initial
            from_start = initial or (initial is None and options.resource_version in {"", "0"})
            await stream.run(call.request, response, ends_initial=from_start and bookmarks)
            await response.write_eof()
        finally:
            subscription.close()
            self.watches.pop(subscription, None)
        return response

    async def _delete_options(self, call: ResourceRequest) -> Json:
        """DeleteOptions of the body and the query. Raises 400 for another kind and for values of the wrong type.

        Differs: kube-apiserver ignores the query, including dryRun, if the request has a body.
        """
        body = await read_body(call.request)
        options = decoded(body, call.media_type, strictly=False).obj if body.strip() else {}
        if (kind := options.get("kind") or "DeleteOptions") != "DeleteOptions":
            raise bad_request(f"the body: kind: {expected('DeleteOptions', kind)}")
        for path, why in check.mistyped_delete_options(options):
            raise bad_request(f"DeleteOptions: {path}: {why}")
        query = call.request.query
        if (policy := call.text("propagationPolicy")) and "propagationPolicy" not in options:
            options["propagationPolicy"] = policy
        if "orphanDependents" in query and "orphanDependents" not in options:
            options["orphanDependents"] = call.flag("orphanDependents")
        if "gracePeriodSeconds" in query and "gracePeriodSeconds" not in options:
            options["gracePeriodSeconds"] = call.number("gracePeriodSeconds")
        checked_policy(options)
        return options

    def _object(
        self, call: ResourceRequest, version: StoredObject, warnings: Sequence[str] = (), status: int = 200
    ) -> web.Response:
        """Shows an object; the response to a write also has the warnings of its kind."""
        renderer = call.renderer
        kind = call.target.kind
        is_warned = call.request.method in _WARNED and not call.target.subresource
        if is_warned and not (kind.is_inert and self._has_seen(call.request, kind)):
            warnings = (*warnings, *self.registry.kinds[kind].warnings(version.obj))
        body = renderer.object_body(version, self.registry.now_s())
        return response_to(call.request, body, status=status, shape=renderer.shape, warnings=warnings)

    def _has_seen(self, request: web.BaseRequest, kind: Kind) -> bool:
        """Whether an earlier write of the connection was answered with the Warning that nothing acts on the kind."""
        kinds = self._inert_kinds_seen.setdefault(connection_of(request), set())
        has_seen = kind in kinds
        kinds.add(kind)
        return has_seen


async def _checked(call: ResourceRequest, policy: Policy) -> tuple[Json, list[str]]:
    text = await read_body(call.request)
    if call.media_type == representation.JSON and (exact := read(call.kind, text)) is not None:
        check_size(exact, text)
        return Serialized(exact), []
    body = decoded(text, call.media_type, strictly=policy != "Ignore", kind=call.kind.kind)
    validator = FieldValidator(call.kind, policy, body.duplicates, pairs=body.pairs)
    return validator(body.obj), validator.warnings


def _deletion_warnings(strategy: DeleteStrategy, options: Json) -> list[str]:
    """Warns of a DELETE without a propagation policy."""
    has_policy = any(options.get(name) is not None for name in ("propagationPolicy", "orphanDependents"))
    return [strategy.warning] if strategy.warning and not has_policy else []


def _unsupported_patch(supported: Iterable[str]) -> StatusError:
    read = ", ".join((*supported, APPLY_PATCH))
    message = f"the body of the request was in an unknown format - accepted media types include: {read}"
    return StatusError(415, "UnsupportedMediaType", message)


_METHODS: dict[tuple[str, bool], Callable[[Verbs, ResourceRequest], Awaitable[web.StreamResponse]]] = {
    ("GET", True): Verbs.get,
    ("HEAD", True): Verbs.get,
    ("GET", False): Verbs.list_,
    ("POST", False): Verbs.create,
    ("POST", True): Verbs.post,
    ("PUT", True): Verbs.update,
    ("PATCH", True): Verbs.patch,
    ("DELETE", True): Verbs.delete,
    ("DELETE", False): Verbs.delete_collection,
}
"""The verb by HTTP method and whether the path names an object; anything else is 405."""
