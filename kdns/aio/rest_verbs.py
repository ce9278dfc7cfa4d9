"""Requests on resources: method and query parameters → a verb of Api → bytes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from random import uniform

from aiohttp import web

from kdns.aio import bodies, rest_content, rest_watch
from kdns.aio.rest_call import Call
from kdns.aio.rest_guard import RestConfig
from kdns.aio.rest_watch import WatchStream, WatchTimes
from kdns.controlplane import gotext, render, schema_check
from kdns.controlplane import warnings as cautions
from kdns.controlplane.api import Api
from kdns.controlplane.discovery import ONE_BY_ONE, SUBRESOURCE_VERBS
from kdns.controlplane.kinds import CLAIM, POD, SERVICE, SERVICE_ACCOUNT, VOLUME, Json
from kdns.controlplane.patch import APPLY_PATCH, JSON_PATCH, PATCH_TYPES, STRATEGIC_MERGE_PATCH
from kdns.controlplane.podposts import POSTS
from kdns.controlplane.review import ApplyReview, Review
from kdns.controlplane.routes import Target
from kdns.controlplane.status import StatusError, bad_request, method_not_allowed
from kdns.controlplane.watch import Subscription
from kdns.controlplane.writeoptions import WriteOptions

DELETE_SHOWS_OBJECT = frozenset({SERVICE, POD, CLAIM, VOLUME, SERVICE_ACCOUNT})
"""Kinds whose DELETE answers with the object; others answer with a Status once they are gone."""

_SUBRESOURCE_VERBS = {"GET": "get", "HEAD": "get", "PUT": "update", "PATCH": "patch", "POST": "create"}
_DELETED_AT_ONCE = 20
_WRITES = frozenset({"POST", "PUT", "PATCH", "DELETE"})


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
        if method is None or (request.method in {"POST", "DELETE"} and not alone):
            raise method_not_allowed(target.kind)
        if method is Verbs.delete_collection and target.kind in ONE_BY_ONE:
            raise method_not_allowed(target.kind)
        if request.method == "POST" and bool(target.name) != bool(target.subresource):
            raise method_not_allowed(target.kind)
        if target.subresource and _SUBRESOURCE_VERBS.get(request.method) not in SUBRESOURCE_VERBS[target.subresource]:
            raise method_not_allowed(target.kind)
        if call.watches:
            return await self._watch(call)
        if request.method in _WRITES:
            _ = call.renderer  # an answer that the client cannot read is refused before anything is written
        response = await method(self, call)
        await self.durable()
        rest_content.warn(response, cautions.of_kind(target.kind))
        return response

    async def get(self, call: Call) -> web.StreamResponse:
        """One object."""
        target, renderer = call.target, call.renderer
        if call.kind != target.kind:
            shown = self.api.get(
                target.kind, target.space, target.name, subresource=target.subresource, form=target.form
            )
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
        body = renderer.many(found, self.api.now_s())
        return await rest_content.large_answer(call.request, body, shape=renderer.shape)

    async def create(self, call: Call) -> web.StreamResponse:
        """POST on a collection."""
        target, options = call.target, call.write_options
        obj, warnings = await _reviewed(call, options)
        created = self.api.create(
            target.kind,
            target.space,
            obj,
            dry_run=options.dry_run,
            field_manager=options.manager,
            form=target.form,
        )
        return self._object(call, created, warnings, status=201)

    async def post(self, call: Call) -> web.StreamResponse:
        """POST on what is below an object: something is done, and nothing but that is answered."""
        target, options = call.target, call.write_options
        obj, warnings = await _reviewed(call, options)
        POSTS[target.subresource](self.api, target.space, target.name, obj, dry_run=options.dry_run)
        status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}
        return rest_content.answer(
            call.request, render.encoded(status), status=201, shape=call.renderer.shape, warnings=warnings
        )

    async def update(self, call: Call) -> web.StreamResponse:
        """PUT on an object: 201 when that created it."""
        target, options = call.target, call.write_options
        obj, warnings = await _reviewed(call, options)
        existed = self._exists(target)
        updated = self.api.update(
            target.kind,
            target.space,
            target.name,
            obj,
            subresource=target.subresource,
            dry_run=options.dry_run,
            field_manager=options.manager,
            form=target.form,
        )
        return self._object(call, updated, warnings, status=200 if existed else 201)

    async def patch(self, call: Call) -> web.StreamResponse:
        """PATCH on an object; one that is applied need not exist yet."""
        target, options = call.target, call.write_options
        if call.media_type == APPLY_PATCH:
            return await self._apply(call, options)
        if call.media_type not in PATCH_TYPES:
            raise _unsupported_patch()
        body = await call.body(strictly=options.policy != "Ignore")
        told = tuple(f"json patch {each}" for each in body.duplicates)
        quoted = gotext.plain(body.value) if call.media_type == STRATEGIC_MERGE_PATCH else ""
        is_json_patch = call.media_type == JSON_PATCH
        review = Review(call.kind, options.policy, told if is_json_patch else body.duplicates, quoted)
        changed = self.api.patch(
            target.kind,
            target.space,
            target.name,
            call.media_type,
            body.value,
            subresource=target.subresource,
            dry_run=options.dry_run,
            field_manager=options.manager,
            form=target.form,
            review=review,
        )
        return self._object(call, changed, review.warnings)

    async def _apply(self, call: Call, options: WriteOptions) -> web.StreamResponse:
        target, body = call.target, await call.body(strictly=options.policy != "Ignore")
        review = ApplyReview(target.kind, options.policy, body.duplicates)
        existed = self._exists(target)
        made = self.api.apply(
            target.kind,
            target.space,
            target.name,
            body.configuration,
            field_manager=options.manager,
            force=options.force,
            subresource=target.subresource,
            dry_run=options.dry_run,
            form=target.form,
            review=review,
        )
        return self._object(call, made, review.warnings, status=200 if existed else 201)

    def _exists(self, target: Target) -> bool:
        return self.api.store.get(target.kind, (target.space, target.name)) is not None

    async def delete(self, call: Call) -> web.StreamResponse:
        """DELETE of an object."""
        target, options = call.target, await self._delete_options(call)
        dry_run = call.dry_run(options)
        last = self.api.delete(target.kind, target.space, target.name, options=options, dry_run=dry_run)
        stays = self.api.store.get(target.kind, (target.space, target.name)) is not None
        if target.kind in DELETE_SHOWS_OBJECT or last["metadata"].get("deletionTimestamp") or (stays and not dry_run):
            return self._object(call, call.renderer.shown(last), [])
        body = render.encoded(render.deleted(call.kind, last))
        return rest_content.answer(call.request, body, shape=call.renderer.shape)

    async def delete_collection(self, call: Call) -> web.StreamResponse:
        """DELETE of everything a list shows, a few at a time: others need not wait for all of it."""
        options, kind = await self._delete_options(call), call.target.kind
        dry_run, renderer = call.dry_run(options), call.renderer
        found = self.api.list(
            kind,
            call.target.namespace,
            label_selector=call.text("labelSelector"),
            field_selector=call.text("fieldSelector"),
        )
        for start in range(0, len(found.stored), _DELETED_AT_ONCE):
            self.api.delete_all(kind, found.stored[start : start + _DELETED_AT_ONCE], options=options, dry_run=dry_run)
            await asyncio.sleep(0)
        body = renderer.many(found, self.api.now_s())
        return await rest_content.large_answer(call.request, body, shape=renderer.shape)

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
                field_selector=call.field_selector,
                send_initial=initial,
            )
        except StatusError as error:
            if error.code != 410:
                raise
            return await rest_watch.refused(call.request, error)
        self.watches[subscription] = None
        try:
            response = await rest_watch.started(call.request, cautions.of_kind(call.kind))
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

    async def _delete_options(self, call: Call) -> Json:
        """DeleteOptions from the body, or from the query; 400 for another kind and for values of the wrong type."""
        body = await bodies.received(call.request)
        options = bodies.decode(body, call.media_type, strictly=False).obj if body.strip() else {}
        if (kind := options.get("kind") or "DeleteOptions") != "DeleteOptions":
            raise bad_request(f"the body is {kind}, wanted DeleteOptions")
        if wrong := schema_check.delete_options_errors(options):
            raise bad_request(f"DeleteOptions cannot be read: {wrong[0]}")
        if (policy := call.text("propagationPolicy")) and "propagationPolicy" not in options:
            options["propagationPolicy"] = policy
        if call.text("gracePeriodSeconds") and "gracePeriodSeconds" not in options:
            options["gracePeriodSeconds"] = call.number("gracePeriodSeconds")
        return options

    def _object(self, call: Call, obj: Json, told: list[str], *, status: int = 200) -> web.StreamResponse:
        renderer = call.renderer
        body = renderer.one(obj, self.api.now_s())
        if call.request.method in {"POST", "PUT", "PATCH"} and not call.target.subresource:
            told = [*told, *cautions.of_object(call.kind, obj)]
        return rest_content.answer(call.request, body, status=status, shape=renderer.shape, warnings=told)


async def _reviewed(call: Call, options: WriteOptions) -> tuple[Json, list[str]]:
    """The object in the body, checked against the schema, and the warnings that this left."""
    body = await call.body(strictly=options.policy != "Ignore")
    review = Review(call.kind, options.policy, body.duplicates)
    return review(body.obj), review.warnings


def _unsupported_patch() -> StatusError:
    read = ", ".join((*PATCH_TYPES, APPLY_PATCH))
    message = f"the body of the request was in an unknown format - accepted media types include: {read}"
    return StatusError(415, "UnsupportedMediaType", message)


_METHODS: dict[tuple[str, bool], Callable[[Verbs, Call], Awaitable[web.StreamResponse]]] = {
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
"""(method, whether the path names an object) → verb; anything else is 405."""
