"""Requests on resources: the HTTP method and query parameters select a verb of `kdns.controlplane.server.api`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from random import uniform
from time import monotonic

from aiohttp import web

from kdns.controlplane.fieldmanager.managed_fields import Writer
from kdns.controlplane.meta.errors import StatusError, bad_request, method_not_allowed
from kdns.controlplane.meta.field_errors import expected
from kdns.controlplane.meta.inert import SIGNING_REQUEST
from kdns.controlplane.meta.kinds import Json, Kind
from kdns.controlplane.resources.catalogue import Catalogue
from kdns.controlplane.resources.generic.signing_requests import requested_by
from kdns.controlplane.resources.strategy import Strategy
from kdns.controlplane.schema import check
from kdns.controlplane.schema.field_validation import FieldValidator
from kdns.controlplane.server import representation
from kdns.controlplane.server.access.reviews import Reviewer
from kdns.controlplane.server.access.users import User
from kdns.controlplane.server.api import Api
from kdns.controlplane.server.discovery import SUBRESOURCE_VERBS
from kdns.controlplane.server.io import watch
from kdns.controlplane.server.io.authentication import RestConfig
from kdns.controlplane.server.io.body import decoded_body, read_body
from kdns.controlplane.server.io.request import ResourceRequest
from kdns.controlplane.server.io.response import add_warnings, object_response, response_to, send
from kdns.controlplane.server.io.threads import LARGE_BYTES, in_thread, made_in_thread
from kdns.controlplane.server.io.watch import WatchStream, WatchTimes
from kdns.controlplane.server.options import WriteOptions, checked_policy
from kdns.controlplane.server.patch import APPLY_PATCH, JSON_PATCH, patch_types
from kdns.controlplane.server.routes import Target
from kdns.controlplane.server.subresources import POSTS
from kdns.controlplane.storage import listing
from kdns.controlplane.storage.listing import ListResult
from kdns.controlplane.storage.object_meta import is_terminating, timestamp
from kdns.controlplane.storage.watch import StoredObject, Subscription

_SUBRESOURCE_VERBS = {"GET": "get", "HEAD": "get", "PUT": "update", "PATCH": "patch", "POST": "create"}
_DELETED_AT_ONCE = 20
TURN_S = 0.005
UNSENT_BYTES_MAX = 256 * 1024 * 1024
"""How much large responses may hold together until their clients have read them."""
_WRITES = frozenset({"POST", "PUT", "PATCH", "DELETE"})


@dataclass(slots=True)
class Verbs:
    """The HTTP methods on resources. `durable` returns when everything committed so far is on disk."""

    api: Api
    config: RestConfig
    durable: Callable[[], Awaitable[None]]
    watches: dict[Subscription, None]
    unsent_bytes: int = 0

    async def run(self, request: web.BaseRequest, target: Target, user: User) -> web.StreamResponse:
        """Returns the response to a request. Raises StatusError for one that is refused."""
        call = ResourceRequest(request, target, user, self.api.kinds)
        if target.kind.is_review:
            return await self._review(call)
        method = _METHODS.get((request.method, bool(target.name)))
        if target.watch and request.method != "GET":
            raise method_not_allowed()
        has_scope = target.name or target.namespace or not target.kind.namespaced
        if method is None or (request.method in {"POST", "DELETE"} and not has_scope):
            raise method_not_allowed()
        if method is Verbs.delete_collection and not self.api.kinds[target.kind].delete_collection:
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
        add_warnings(response, deprecations_of(self.api.kinds, target.kind))
        if isinstance(response, web.Response) and request.method != "HEAD":
            await self._send(request, response)
        return response

    async def _send(self, request: web.BaseRequest, response: web.Response) -> None:
        """Sends a large response. Raises raises 429 for a GET if too many bytes of other responses are unread."""
        body = response.body
        if not isinstance(body, bytes) or len(body) < LARGE_BYTES:
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
        """Handles GET of one object."""
        target, renderer = call.target, call.renderer
        listing.check_present(self.api.store, call.text("resourceVersion"))
        if call.kind != target.kind:
            shown = self.api.get(
                target.kind,
                target.space,
                target.name,
                subresource=target.subresource,
                served_version=target.served_version,
            )
            return self._object(call, _Result(shown, []))
        version = self.api.find(target.kind, target.space, target.name)
        now_s = self.api.now_s()

        def response() -> web.Response:
            body = version.encoded if renderer.sends_stored else renderer.one(version.obj, now_s)
            return response_to(call.request, body, shape=renderer.shape)

        return await in_thread(response, len(version.encoded))

    async def list_(self, call: ResourceRequest) -> web.StreamResponse:
        """Handles GET of a collection."""
        _ = call.renderer  # 406 comes first
        return await self._page(call, await self._listed(call))

    async def _listed(self, call: ResourceRequest) -> ListResult:
        call.check_options()
        await self._read_ahead(call)
        return self.api.list(
            call.target.kind,
            call.target.namespace,
            label_selector=call.text("labelSelector"),
            field_selector=call.text("fieldSelector"),
            limit=call.number("limit"),
            continue_token=call.text("continue"),
            resource_version=call.text("resourceVersion"),
            resource_version_match=call.text("resourceVersionMatch"),
            served_version=call.target.served_version,
        )

    async def _read_ahead(self, call: ResourceRequest) -> None:
        """Decodes the objects that selectors read, a few milliseconds at a time: after a restart none is decoded."""
        looked_at = self.api.looked_at(
            call.target.kind,
            call.target.namespace,
            label_selector=call.text("labelSelector"),
            field_selector=call.field_selector,
            limit=call.number("limit"),
            served_version=call.target.served_version,
        )
        until_s = monotonic() + TURN_S
        for version in looked_at:
            _ = version.obj
            if monotonic() >= until_s:
                await asyncio.sleep(0)
                until_s = monotonic() + TURN_S

    async def _page(self, call: ResourceRequest, listed: ListResult) -> web.StreamResponse:
        renderer, now_s = call.renderer, self.api.now_s()

        def response() -> web.Response:
            return response_to(call.request, renderer.many(listed, now_s), shape=renderer.shape)

        return await in_thread(response, sum(len(version.encoded) for version in listed.stored))

    async def create(self, call: ResourceRequest) -> web.StreamResponse:
        """Handles POST on a collection."""
        target, options = call.target, call.write_options
        sent = await _reviewed(call, options)

        def write() -> _Result:
            created = self.api.create(
                target.kind,
                target.space,
                _authored(call, sent.obj),
                dry_run=options.dry_run,
                field_manager=options.manager,
                served_version=target.served_version,
            )
            return _Result(created, sent.warnings, 201)

        return await self._written(call, sent.size_bytes, write)

    async def post(self, call: ResourceRequest) -> web.StreamResponse:
        """Handles POST on a subresource such as pods/eviction; the response is a Status."""
        target, options = call.target, call.write_options
        sent = await _reviewed(call, options)
        POSTS[target.subresource](self.api, target.space, target.name, sent.obj, dry_run=options.dry_run)
        status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}
        return object_response(call.request, status, status=201, warnings=sent.warnings)

    async def _review(self, call: ResourceRequest) -> web.StreamResponse:
        """Handles POST of a review, which is answered and not stored."""
        if call.request.method != "POST":
            raise method_not_allowed()
        _ = call.renderer  # 406 comes first
        options = call.write_options
        review = await _reviewed(call, options)
        audience = f"https://kubernetes.default.svc.{self.api.registry.config.cluster_domain}"
        reviewer = Reviewer(self.config.user_of, audience)
        writer = Writer(options.manager, time=timestamp(self.api.now_s()))
        answered = reviewer.answered(call.target.kind, call.target.space, review.obj, call.user, writer)
        body = call.renderer.one(answered, self.api.now_s())
        return response_to(call.request, body, status=201, shape=call.renderer.shape, warnings=review.warnings)

    async def update(self, call: ResourceRequest) -> web.StreamResponse:
        """Handles PUT on an object: 201 if this creates it."""
        target, options = call.target, call.write_options
        sent = await _reviewed(call, options)

        def write() -> _Result:
            status = 200 if self._exists(target) else 201
            updated = self.api.update(
                target.kind,
                target.space,
                target.name,
                sent.obj,
                subresource=target.subresource,
                dry_run=options.dry_run,
                field_manager=options.manager,
                served_version=target.served_version,
            )
            return _Result(updated, sent.warnings, status)

        return await self._written(call, sent.size_bytes, write)

    async def patch(self, call: ResourceRequest) -> web.StreamResponse:
        """Handles PATCH on an object; server-side apply also creates objects."""
        target, options = call.target, call.write_options
        if call.media_type == APPLY_PATCH:
            return await self._apply(call, options)
        if call.media_type not in (supported := patch_types(call.kind)):
            raise _unsupported_patch(supported)
        body = await call.body(strictly=options.policy != "Ignore")
        in_json_patch = tuple(f"json patch {each}" for each in body.duplicates)
        duplicates = in_json_patch if call.media_type == JSON_PATCH else body.duplicates

        def write() -> _Result:
            validator = FieldValidator(call.kind, options.policy, duplicates, is_patch=True)
            changed = self.api.patch(
                target.kind,
                target.space,
                target.name,
                call.media_type,
                body.value,
                subresource=target.subresource,
                dry_run=options.dry_run,
                field_manager=options.manager,
                served_version=target.served_version,
                validate=validator,
            )
            return _Result(changed, validator.warnings)

        return await self._written(call, body.size_bytes, write)

    async def _apply(self, call: ResourceRequest, options: WriteOptions) -> web.StreamResponse:
        target, body = call.target, await call.body(strictly=options.policy != "Ignore")

        def write() -> _Result:
            validator = FieldValidator(target.kind, options.policy, body.duplicates)
            status = 200 if self._exists(target) else 201
            made = self.api.apply(
                target.kind,
                target.space,
                target.name,
                _authored(call, body.obj),
                field_manager=options.manager,
                force=options.force,
                subresource=target.subresource,
                dry_run=options.dry_run,
                served_version=target.served_version,
                validate=validator,
            )
            return _Result(made, validator.warnings, status)

        return await self._written(call, body.size_bytes, write)

    def _exists(self, target: Target) -> bool:
        return self.api.store.get(target.kind, (target.space, target.name)) is not None

    async def delete(self, call: ResourceRequest) -> web.StreamResponse:
        """Handles DELETE of one object."""
        target, options = call.target, await self._delete_options(call)
        dry_run, before = call.dry_run(options), self.api.store.get(target.kind, (target.space, target.name))
        last = self.api.delete(target.kind, target.space, target.name, options=options, dry_run=dry_run)
        warnings = _deletion_warnings(self.api.kinds[target.kind], options)
        remains = self.api.store.get(target.kind, (target.space, target.name)) is not None
        shows_object = self.api.kinds[target.kind].return_deleted_object
        if shows_object or is_terminating(last) or (remains and not dry_run):
            shown, size_bytes = _Result(call.renderer.shown(last), warnings), len(before.encoded) if before else 0
            return await in_thread(lambda: self._object(call, shown), size_bytes)
        shape = call.renderer.shape
        body = representation.encoded_as(representation.deleted(call.kind, last), shape.media_type)
        return response_to(call.request, body, shape=shape, warnings=warnings)

    async def delete_collection(self, call: ResourceRequest) -> web.StreamResponse:
        """Handles DELETE of a collection, a few objects at a time, so that other requests are served in between."""
        options, kind = await self._delete_options(call), call.target.kind
        dry_run = call.dry_run(options)
        listed = await self._listed(call)
        for start in range(0, len(listed.stored), _DELETED_AT_ONCE):
            self.api.delete_all(kind, listed.stored[start : start + _DELETED_AT_ONCE], options=options, dry_run=dry_run)
            await asyncio.sleep(0)
        response = await self._page(call, listed)
        add_warnings(response, _deletion_warnings(self.api.kinds[kind], options))
        return response

    async def _watch(self, call: ResourceRequest) -> web.StreamResponse:
        if len(self.watches) >= self.config.watches_max:
            raise StatusError(429, "TooManyRequests", f"no more than {self.config.watches_max} watches at a time")
        call.check_options()
        renderer, initial = call.renderer, call.flag("sendInitialEvents")
        bookmarks = bool(call.flag("allowWatchBookmarks"))
        await self._read_ahead(call)
        timeout_s = call.number("timeoutSeconds") or self.config.watch_timeout_s * uniform(0.6, 1.2)
        try:
            subscription = self.api.watch(
                call.target.kind,
                call.target.namespace,
                resource_version=call.text("resourceVersion"),
                label_selector=call.text("labelSelector"),
                field_selector=call.field_selector,
                send_initial=initial,
                served_version=call.target.served_version,
            )
        except StatusError as error:
            if error.code != 410:
                raise
            return await watch.refused(call.request, renderer, error)
        self.watches[subscription] = None
        try:
            response = await watch.started(call.request, renderer, deprecations_of(self.api.kinds, call.kind))
            times = WatchTimes(timeout_s, self.config.bookmark_interval_s if bookmarks else None)
            state = watch.StoreState(lambda: self.api.store.revision, self.durable, self.api.now_s)
            stream = WatchStream(subscription, renderer, state, times)
            from_start = initial or (initial is None and call.text("resourceVersion") in {"", "0"})
            await stream.run(call.request, response, ends_initial=from_start and bookmarks)
            await response.write_eof()
        finally:
            subscription.close()
            self.watches.pop(subscription, None)
        return response

    async def _delete_options(self, call: ResourceRequest) -> Json:
        """Returns the DeleteOptions of the body and the query. Raises 400 for another kind and for values of the wrong
        type.

        Differs: kube-apiserver ignores the query, including dryRun, if the request has a body.
        """
        body = await read_body(call.request)
        options = (await decoded_body(body, call.media_type, strictly=False)).obj if body.strip() else {}
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

    async def _written(
        self, call: ResourceRequest, size_bytes: int, write: Callable[[], _Result]
    ) -> web.StreamResponse:
        """The response to a write. Where the object, or what is sent, is large, it is made aside."""
        key = call.target.space, call.target.name

        def latest() -> StoredObject | None:
            return self.api.store.get(call.target.kind, key)

        if version := latest():
            size_bytes = max(size_bytes, len(version.encoded))
        return await made_in_thread(lambda: self._object(call, write()), size_bytes, latest)

    def _object(self, call: ResourceRequest, result: _Result) -> web.StreamResponse:
        renderer, obj, warnings = call.renderer, result.obj, result.warnings
        body = renderer.one(obj, self.api.now_s())
        if call.request.method in {"POST", "PUT", "PATCH"} and not call.target.subresource:
            warnings = [*warnings, *self.api.kinds[call.target.kind].warnings(obj)]
        return response_to(call.request, body, status=result.status, shape=renderer.shape, warnings=warnings)


@dataclass(frozen=True, slots=True)
class _Result:
    """The result of a write."""

    obj: Json
    warnings: list[str]
    status: int = 200


@dataclass(frozen=True, slots=True)
class _Sent:
    """The object in a body of so many bytes, checked against the schema, and the warnings of that check."""

    obj: Json
    warnings: list[str]
    size_bytes: int


async def _reviewed(call: ResourceRequest, options: WriteOptions) -> _Sent:
    body = await call.body(strictly=options.policy != "Ignore")
    validator = FieldValidator(call.kind, options.policy, body.duplicates, pairs=body.pairs)
    obj = await in_thread(lambda: validator(body.obj), body.size_bytes)
    return _Sent(obj, validator.warnings, body.size_bytes)


def _authored(call: ResourceRequest, obj: Json) -> Json:
    """Returns a new object with its author's fields."""
    return requested_by(obj, call.user.info) if call.target.kind is SIGNING_REQUEST else obj


def deprecations_of(kinds: Catalogue, kind: Kind) -> list[str]:
    """Returns the warning of every response about a kind that is deprecated."""
    warning = kind.deprecation or ("" if kind.is_review else kinds[kind.stored_kind].deprecation)
    return [warning] if warning else []


def _deletion_warnings(strategy: Strategy, options: Json) -> list[str]:
    """Returns the warning of a DELETE without a propagation policy."""
    says = any(options.get(name) is not None for name in ("propagationPolicy", "orphanDependents"))
    warning = "" if says else strategy.deletion_warning
    return [warning] if warning else []


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
"""(HTTP method, whether the path names an object) → verb; anything else is 405."""
