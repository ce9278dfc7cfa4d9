"""A request on a resource: its path, query parameters, headers and body as typed values."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cached_property

from aiohttp import web

from kdns.controlplane.apimachinery.errors import bad_request
from kdns.controlplane.apimachinery.field_errors import expected
from kdns.controlplane.apimachinery.kinds import Json, Kind
from kdns.controlplane.kinds.catalogue import Catalogue
from kdns.controlplane.server import representation
from kdns.controlplane.server.access.users import User
from kdns.controlplane.server.conversions import kind_at
from kdns.controlplane.server.io.body import Body, decoded, read_body
from kdns.controlplane.server.patch import APPLY_PATCH
from kdns.controlplane.server.representation import IncludeObject, Renderer
from kdns.controlplane.server.request import Request, checked_dry_run, with_write_options
from kdns.controlplane.storage import listing
from kdns.controlplane.storage.listing import ListOptions

INCLUDE_OBJECT: dict[str, IncludeObject] = {"": "Metadata", "None": "None", "Metadata": "Metadata", "Object": "Object"}
_NUMBER = re.compile(r"[+-]?[0-9]{1,40}")  # Python refuses to read thousands of digits


@dataclass(frozen=True)
class ResourceRequest:
    """A request whose path names a resource."""

    request: web.BaseRequest
    target: Request
    user: User
    kinds: Catalogue

    @cached_property
    def kind(self) -> Kind:
        """The kind of the bodies: the served version, else the kind of the resource or subresource."""
        target = self.target
        kind = target.served_version or target.kind
        return kind_at(kind, target.subresource) if target.subresource else kind

    def text(self, name: str) -> str:
        """Returns a query parameter, "" if it is absent."""
        return str(self.request.query.get(name, ""))

    def flag(self, name: str) -> bool | None:
        """Returns a boolean query parameter, None if it is absent: all but false and 0 is true."""
        value = self.request.query.get(name)
        return None if value is None else value.lower() not in {"false", "0"}

    def number(self, name: str) -> int:
        """Returns an integer query parameter of 64 bits, 0 if it is absent. Raises 400 for other text."""
        text = self.request.query.get(name, "0")
        if _NUMBER.fullmatch(text) and -(1 << 63) <= int(text) < 1 << 63:
            return int(text)
        raise bad_request(f"{name}: {expected('an integer of 64 bits', text)}")

    @cached_property
    def watches(self) -> bool:
        """Whether the request is a watch: `watch=true` on a collection.

        Differs: the deprecated paths below `/watch/` are 404.
        """
        return self.request.method == "GET" and not self.target.name and bool(self.flag("watch"))

    def check_options(self) -> None:
        """Checks ListOptions: 422 for a combination that is not allowed, 400 for a number that cannot be parsed."""
        for name in ("limit", "timeoutSeconds"):
            self.number(name)
        listing.check_options(self.list_options, watch=self.watches)

    @cached_property
    def list_options(self) -> ListOptions:
        """The parameters of a list or watch. Raises 400 for values that cannot be parsed, and for a wrong selector."""
        return ListOptions(
            label_selector=self.text("labelSelector"),
            field_selector=self.text("fieldSelector"),
            limit=self.number("limit"),
            continue_token=self.text("continue"),
            resource_version=self.text("resourceVersion"),
            resource_version_match=self.text("resourceVersionMatch"),
            send_initial=self.flag("sendInitialEvents"),
        )

    @cached_property
    def write(self) -> Request:
        """The target with the options of a write. Raises 422 for values that these cannot have."""
        return with_write_options(
            self.target,
            self.request.method,
            manager=self.text("fieldManager"),
            user_agent=self.request.headers.get("User-Agent", ""),
            dry_run=self.request.query.getall("dryRun", []),
            policy=self.text("fieldValidation"),
            force=self.flag("force"),
            applies=self.media_type == APPLY_PATCH,
        )

    def deletion(self, options: Json) -> Request:
        """Returns the target, as a dry run if query or DeleteOptions say so. Raises 422 for other values."""
        values = [*self.request.query.getall("dryRun", []), *(options.get("dryRun") or [])]
        return replace(self.target, dry_run=checked_dry_run(self.request.method, values))

    async def body(self, *, strictly: bool = False) -> Body:
        """Returns the decoded body. Raises 400 if it cannot be decoded."""
        body = await read_body(self.request)
        return decoded(body, self.media_type, strictly=strictly, kind=self.kind.kind)

    @cached_property
    def media_type(self) -> str:
        """The media type of the body without parameters, "" without a Content-Type."""
        return self.request.headers.get("Content-Type", "").partition(";")[0].strip().lower()

    @cached_property
    def renderer(self) -> Renderer:
        """The renderer of the representation that the client accepts. Raises 400 for a wrong includeObject."""
        include = INCLUDE_OBJECT.get(self.text("includeObject"))
        if include is None:
            raise bad_request(f"includeObject: {expected('None, Metadata or Object', self.text('includeObject'))}")
        accept, has_forms = self.request.headers.get("Accept", ""), not self.kind.is_review
        shape = representation.representation(accept, has_forms=has_forms, streams=self.watches)
        return Renderer(self.kinds, self.kind, shape, include)
