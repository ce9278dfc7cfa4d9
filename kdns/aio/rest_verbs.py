"""Requests on resources: method and query parameters → a verb of Api → bytes."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from random import uniform

from aiohttp import web

from kdns.aio import rest_content, rest_watch
from kdns.aio.rest_content import Review
from kdns.aio.rest_guard import RestConfig
from kdns.aio.rest_watch import WatchStream, WatchTimes
from kdns.controlplane import listoptions, negotiate, render, schema_check
from kdns.controlplane.api import Api
from kdns.controlplane.kinds import POD, SERVICE, Json, Kind
from kdns.controlplane.patch import APPLY_PATCH, PATCH_TYPES
from kdns.controlplane.render import Renderer
from kdns.controlplane.routes import Target
from kdns.controlplane.status import StatusError, bad_request, method_not_allowed
from kdns.controlplane.tables import IncludeObject
from kdns.controlplane.views import view_of
from kdns.controlplane.watch import Subscription

DELETE_SHOWS_OBJECT = frozenset({SERVICE, POD})
"""Kinds whose DELETE answers with the object; others answer with a Status once they are gone."""

INCLUDE_OBJECT: dict[str, IncludeObject] = {"": "Metadata", "None": "None", "Metadata": "Metadata", "Object": "Object"}
_NUMBER = re.compile(r"[+-]?[0-9]{1,18}")
_WRITES = frozenset({"POST", "PUT", "PATCH", "DELETE"})


@dataclass(frozen=True, slots=True)
class Call:
    """One request on one resource."""

    request: web.BaseRequest
    target: Target

    @property
    def kind(self) -> Kind:
        """What goes in and out: the resource's kind, or the one that a subresource shows."""
        view = view_of(self.target.kind, self.target.subresource)
        return view.kind if view else self.target.kind

    def text(self, name: str) -> str:
        """A query parameter, "" when it is absent."""
        return str(self.request.query.get(name, ""))

    def flag(self, name: str) -> bool | None:
        """A boolean query parameter, None when it is absent: all but false and 0 is true."""
        value = self.request.query.get(name)
        return None if value is None else value.lower() not in {"false", "0"}

    def number(self, name: str) -> int:
        """A query parameter that counts something, 0 when it is absent; 400 for other text."""
        text = self.text(name) or "0"
        if not _NUMBER.fullmatch(text):
            raise bad_request(f"{name}: found {text[:40]!r}, wanted a number of at most 18 digits")
        return int(text)

    @property
    def watches(self) -> bool:
        """Whether this asks for the changes to a collection."""
        return self.request.method == "GET" and not self.target.name and bool(self.target.watch or self.flag("watch"))

    def check_options(self) -> None:
        """422 for options of a list or a watch that do not go together."""
        listoptions.check(
            watch=self.watches,
            match=self.text("resourceVersionMatch"),
            resource_version=self.text("resourceVersion"),
            continue_token=self.text("continue"),
            send_initial=self.flag("sendInitialEvents"),
        )

    @property
    def dry_run(self) -> bool:
        """dryRun=All; 400 for any other value."""
        return _is_dry_run(self.request.query.getall("dryRun", []))

    @property
    def media_type(self) -> str:
        """The body's type without parameters; "" when none is said."""
        return self.request.headers.get("Content-Type", "").partition(";")[0].strip().lower()

    @property
    def renderer(self) -> Renderer:
        """What the client accepts, for objects of this kind."""
        include = INCLUDE_OBJECT.get(self.text("includeObject"))
        if include is None:
            raise bad_request(f"includeObject: found {self.text('includeObject')!r}, wanted None, Metadata or Object")
        return Renderer(self.kind, negotiate.representation(self.request.headers.get("Accept", "")), include)


@dataclass(slots=True)
class Verbs:
    """The methods on resources. `durable` returns when everything committed so far is on disk."""

    api: Api
    config: RestConfig
    durable: Callable[[], Awaitable[None]]
    watches: dict[Subscription, None]

    async def run(self, request: web.BaseRequest, target: Target) -> web.StreamResponse:
        """The response of a request; StatusError for a refused one."""
        call = Call(request, target)
        method = _METHODS.get((request.method, bool(target.name)))
        if target.watch and request.method != "GET":
            raise method_not_allowed(target.kind)
        alone = target.name or target.namespace or not target.kind.namespaced
        if method is None or (request.method == "POST" and not alone):
            raise method_not_allowed(target.kind)
        if target.subresource and request.method not in {"GET", "PUT", "PATCH"}:
            raise method_not_allowed(target.kind)
        if call.watches:
            return await self._watch(call)
        if request.method in _WRITES:
            _ = call.renderer  # an answer that the client cannot read is refused before anything is written
        response = await method(self, call)
        await self.durable()
        return response

    async def get(self, call: Call) -> web.StreamResponse:
        """One object."""
        target, renderer = call.target, call.renderer
        if target.watch:
            raise bad_request("a watch of one object is a watch of its collection with fieldSelector=metadata.name=…")
        if call.kind != target.kind:
            shown = self.api.get(target.kind, target.space, target.name, subresource=target.subresource)
            return self._object(call, shown, [])
        version = self.api.find(target.kind, target.space, target.name)
        body = version.encoded if not renderer.shape.form else renderer.one(version.obj, self.api.now_s())
        return rest_content.answer(call.request, body, shape=renderer.shape)

    async def list_(self, call: Call) -> web.StreamResponse:
        """A collection."""
        call.check_options()
        renderer = call.renderer
        found = self.api.list(
            call.target.kind,
            call.target.namespace,
            label_selector=call.text("labelSelector"),
            field_selector=call.text("fieldSelector"),
            limit=call.number("limit"),
            continue_token=call.text("continue"),
            resource_version=call.text("resourceVersion"),
            resource_version_match=call.text("resourceVersionMatch"),
        )
        return rest_content.answer(call.request, renderer.many(found, self.api.now_s()), shape=renderer.shape)

    async def create(self, call: Call) -> web.StreamResponse:
        """POST on a collection."""
        target, review = call.target, Review(call.kind, call.text("fieldValidation"))
        obj = await self._body(call, review)
        created = self.api.create(target.kind, target.space, obj, dry_run=call.dry_run)
        return self._object(call, created, review.warnings, status=201)

    async def update(self, call: Call) -> web.StreamResponse:
        """PUT on an object: 201 when that created it."""
        target, review = call.target, Review(call.kind, call.text("fieldValidation"))
        obj = await self._body(call, review)
        existed = self.api.store.get(target.kind, (target.space, target.name)) is not None
        updated = self.api.update(
            target.kind, target.space, target.name, obj, subresource=target.subresource, dry_run=call.dry_run
        )
        return self._object(call, updated, review.warnings, status=200 if existed else 201)

    async def patch(self, call: Call) -> web.StreamResponse:
        """PATCH on an object."""
        target, review = call.target, Review(call.kind, call.text("fieldValidation"))
        if call.media_type not in PATCH_TYPES:
            raise _unsupported_patch(call.media_type)
        patch = rest_content.decoded(await rest_content.body_of(call.request), call.media_type)
        changed = self.api.patch(
            target.kind,
            target.space,
            target.name,
            call.media_type,
            patch,
            subresource=target.subresource,
            dry_run=call.dry_run,
            review=review,
        )
        return self._object(call, changed, review.warnings)

    async def delete(self, call: Call) -> web.StreamResponse:
        """DELETE of an object."""
        target, options = call.target, await self._delete_options(call)
        dry_run = call.dry_run or _is_dry_run(options.get("dryRun") or [])
        last = self.api.delete(target.kind, target.space, target.name, options=options, dry_run=dry_run)
        stays = self.api.store.get(target.kind, (target.space, target.name)) is not None
        if target.kind in DELETE_SHOWS_OBJECT or last["metadata"].get("deletionTimestamp") or (stays and not dry_run):
            return self._object(call, last, [])
        body = render.encoded(render.deleted(target.kind, last))
        return rest_content.answer(call.request, body, shape=call.renderer.shape)

    async def delete_collection(self, call: Call) -> web.StreamResponse:
        """DELETE of everything a list would show."""
        options = await self._delete_options(call)
        found = self.api.delete_collection(
            call.target.kind,
            call.target.namespace,
            label_selector=call.text("labelSelector"),
            field_selector=call.text("fieldSelector"),
            options=options,
            dry_run=call.dry_run or _is_dry_run(options.get("dryRun") or []),
        )
        renderer = call.renderer
        return rest_content.answer(call.request, renderer.many(found, self.api.now_s()), shape=renderer.shape)

    async def _watch(self, call: Call) -> web.StreamResponse:
        if len(self.watches) >= self.config.watches_max:
            raise StatusError(429, "TooManyRequests", f"no more than {self.config.watches_max} watches at a time")
        call.check_options()
        renderer, initial = call.renderer, call.flag("sendInitialEvents")
        bookmarks = bool(call.flag("allowWatchBookmarks"))
        timeout_s = call.number("timeoutSeconds") or self.config.watch_timeout_s * uniform(0.6, 1.2)
        try:
            subscription = self.api.watch(
                call.target.kind,
                call.target.namespace,
                resource_version=call.text("resourceVersion"),
                label_selector=call.text("labelSelector"),
                field_selector=call.text("fieldSelector"),
                send_initial=initial,
            )
        except StatusError as error:
            if error.code != 410:
                raise
            return await rest_watch.refused(call.request, error)
        self.watches[subscription] = None
        try:
            response = await rest_watch.started(call.request)
            times = WatchTimes(timeout_s, self.config.bookmark_interval_s if bookmarks else None)
            cluster = rest_watch.Cluster(lambda: self.api.store.revision, self.durable, self.api.now_s)
            stream = WatchStream(subscription, renderer, cluster, times)
            from_start = initial or (initial is None and call.text("resourceVersion") in {"", "0"})
            await stream.run(call.request, response, ends_initial=from_start and bookmarks)
            await response.write_eof()
        finally:
            subscription.close()
            self.watches.pop(subscription, None)
        return response

    async def _body(self, call: Call, review: Review) -> Json:
        body = await rest_content.body_of(call.request)
        return review(rest_content.decoded_object(body, call.media_type))

    async def _delete_options(self, call: Call) -> Json:
        """DeleteOptions from the body, or from the query; 400 for values of the wrong type."""
        body = await rest_content.body_of(call.request)
        options = rest_content.decoded_object(body, call.media_type) if body.strip() else {}
        if wrong := schema_check.delete_options_errors(options):
            raise bad_request(f"DeleteOptions cannot be read: {wrong[0]}")
        if (policy := call.text("propagationPolicy")) and "propagationPolicy" not in options:
            options["propagationPolicy"] = policy
        if call.text("gracePeriodSeconds") and "gracePeriodSeconds" not in options:
            options["gracePeriodSeconds"] = call.number("gracePeriodSeconds")
        return options

    def _object(self, call: Call, obj: Json, warnings: list[str], *, status: int = 200) -> web.StreamResponse:
        renderer = call.renderer
        body = renderer.one(obj, self.api.now_s())
        return rest_content.answer(call.request, body, status=status, shape=renderer.shape, warnings=warnings)


def _is_dry_run(values: list[str]) -> bool:
    if any(value != "All" for value in values):
        raise bad_request(f"dryRun: found {', '.join(map(str, values))!r}, wanted All")
    return bool(values)


def _unsupported_patch(media_type: str) -> StatusError:
    hint = "; server-side apply is not served, use client-side apply" if media_type == APPLY_PATCH else ""
    message = (
        f"the body of the request was in an unknown format - accepted media types include: {', '.join(PATCH_TYPES)}"
    )
    return StatusError(415, "UnsupportedMediaType", message + hint)


_METHODS: dict[tuple[str, bool], Callable[[Verbs, Call], Awaitable[web.StreamResponse]]] = {
    ("GET", True): Verbs.get,
    ("HEAD", True): Verbs.get,
    ("GET", False): Verbs.list_,
    ("POST", False): Verbs.create,
    ("PUT", True): Verbs.update,
    ("PATCH", True): Verbs.patch,
    ("DELETE", True): Verbs.delete,
    ("DELETE", False): Verbs.delete_collection,
}
"""(method, whether the path names an object) → verb; anything else is 405."""
