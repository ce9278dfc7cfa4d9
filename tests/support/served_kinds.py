"""The built-in kinds for tables of tests."""

from kdns.controlplane.apimachinery.kinds import Json, Kind
from kdns.controlplane.kinds.catalogue import Catalogue
from kdns.controlplane.kinds.served import ServedKinds
from kdns.controlplane.server.openapi import Documents
from kdns.controlplane.server.representation import IncludeObject, Renderer, Representation

CATALOGUE = ServedKinds()
"""A catalogue that no test changes."""

DOCUMENTS = Documents(CATALOGUE)

KINDS: tuple[Kind, ...] = CATALOGUE.stored
GENERIC: tuple[Kind, ...] = tuple(kind for kind in KINDS if kind.is_inert)
SERVED: tuple[Kind, ...] = tuple(kind for kind in CATALOGUE if not kind.is_review)
REVIEWS: tuple[Kind, ...] = tuple(kind for kind in CATALOGUE if kind.is_review)

NOW_S: float = 1_714_564_800.0
"""2024-05-01T12:00:00Z"""


def table(
    kind: Kind,
    objects: list[Json],
    include: IncludeObject = "Metadata",
    metadata: Json | None = None,
    kinds: Catalogue = CATALOGUE,
    now_s: float = NOW_S,
) -> Json:
    return Renderer(kinds, kind, Representation(form="Table"), include).table(objects, now_s, metadata or {})
