"""One request on one resource: what its path, query parameters, headers and body ask for."""

from __future__ import annotations

import re
from dataclasses import dataclass

from aiohttp import web

from kdns.aio import bodies
from kdns.aio.bodies import Body
from kdns.controlplane import listoptions, negotiate
from kdns.controlplane.gotext import syntax
from kdns.controlplane.kinds import Json, Kind
from kdns.controlplane.patch import APPLY_PATCH
from kdns.controlplane.render import Renderer
from kdns.controlplane.routes import Target
from kdns.controlplane.status import bad_request
from kdns.controlplane.tables import IncludeObject
from kdns.controlplane.views import kind_at
from kdns.controlplane.writeoptions import WriteOptions, checked_dry_run, write_options

INCLUDE_OBJECT: dict[str, IncludeObject] = {"": "Metadata", "None": "None", "Metadata": "Metadata", "Object": "Object"}
_NUMBER = re.compile(r"[+-]?[0-9]{1,18}")


@dataclass(frozen=True, slots=True)
class Call:
    """One request on one resource."""

    request: web.BaseRequest
    target: Target

    @property
    def kind(self) -> Kind:
        """What goes in and out: the resource's kind, or the one that a form or a subresource shows."""
        return self.target.form or kind_at(self.target.kind, self.target.subresource)

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
            raise bad_request(f"{name}: found {syntax(text[:40])}, wanted a number of at most 18 digits")
        return int(text)

    @property
    def watches(self) -> bool:
        """Whether this asks for the changes to a collection, or with an old path to one object."""
        asked = self.target.watch or (not self.target.name and self.flag("watch"))
        return self.request.method == "GET" and bool(asked)

    @property
    def field_selector(self) -> str:
        """The parameter, or the one object that an old path of a watch names; 400 when they do not fit together."""
        asked, name = self.text("fieldSelector"), self.target.name
        if not (self.target.watch and name):
            return asked
        wanted = f"metadata.name={name}"
        if asked and wanted not in asked.replace("==", "=").split(","):
            raise bad_request("fieldSelector metadata.name doesn't match requested name")
        return asked or wanted

    def check_options(self) -> None:
        """422 for options of a list or a watch that do not go together, 400 for numbers that are none."""
        for name in ("limit", "timeoutSeconds"):
            self.number(name)
        listoptions.check(
            watch=self.watches,
            match=self.text("resourceVersionMatch"),
            resource_version=self.text("resourceVersion"),
            continue_token=self.text("continue"),
            send_initial=self.flag("sendInitialEvents"),
        )

    @property
    def write_options(self) -> WriteOptions:
        """Who writes, and how strictly; 422 for parameters that cannot be so."""
        return write_options(
            self.request.method,
            manager=self.text("fieldManager"),
            user_agent=self.request.headers.get("User-Agent", ""),
            dry_run=self.request.query.getall("dryRun", []),
            policy=self.text("fieldValidation"),
            force=self.flag("force"),
            applies=self.media_type == APPLY_PATCH,
        )

    def dry_run(self, options: Json) -> bool:
        """Whether a DELETE shall change nothing; 422 for values that dryRun cannot have."""
        asked = [*self.request.query.getall("dryRun", []), *(options.get("dryRun") or [])]
        return checked_dry_run(self.request.method, asked)

    async def body(self, *, strictly: bool = False) -> Body:
        """The decoded body; 400 for none that can be read."""
        return await bodies.decoded(await bodies.received(self.request), self.media_type, strictly=strictly)

    @property
    def media_type(self) -> str:
        """The body's type without parameters; "" when none is said."""
        return self.request.headers.get("Content-Type", "").partition(";")[0].strip().lower()

    @property
    def renderer(self) -> Renderer:
        """What the client accepts, for objects of this kind."""
        include = INCLUDE_OBJECT.get(self.text("includeObject"))
        if include is None:
            raise bad_request(
                f"includeObject: found {syntax(self.text('includeObject'))}, wanted None, Metadata or Object"
            )
        negotiated = negotiate.streamed if self.watches else negotiate.representation
        return Renderer(self.kind, negotiated(self.request.headers.get("Accept", "")), include)
