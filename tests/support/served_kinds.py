"""The built-in kinds for tables of tests."""

from __future__ import annotations

from kdns.controlplane.apimachinery.kinds import Kind
from kdns.controlplane.kinds.catalogue import built_in
from kdns.controlplane.server.openapi import Documents

CATALOGUE = built_in()
"""A catalogue that no test changes."""

DOCUMENTS = Documents(CATALOGUE)

KINDS: tuple[Kind, ...] = CATALOGUE.stored
GENERIC: tuple[Kind, ...] = tuple(kind for kind in KINDS if kind.is_inert)
SERVED: tuple[Kind, ...] = tuple(kind for kind in CATALOGUE if not kind.is_review)
REVIEWS: tuple[Kind, ...] = tuple(kind for kind in CATALOGUE if kind.is_review)
