"""The kinds of an API server: built-in ones, and those of stored CustomResourceDefinitions."""

from __future__ import annotations

from typing import Final

from kdns.controlplane.apimachinery import kinds
from kdns.controlplane.apimachinery.inert import AUTOSCALER_V1
from kdns.controlplane.apimachinery.kinds import DEFINITION
from kdns.controlplane.kinds.catalogue import Catalogue
from kdns.controlplane.kinds.conversion import version_conversion
from kdns.controlplane.kinds.core import STRATEGIES as CORE
from kdns.controlplane.kinds.custom.kinds import CustomKinds
from kdns.controlplane.kinds.discovery import STRATEGIES as DISCOVERY
from kdns.controlplane.kinds.generic import STRATEGIES as GENERIC
from kdns.controlplane.kinds.node import STRATEGIES as NODE
from kdns.controlplane.kinds.pod.strategy import STRATEGIES as POD
from kdns.controlplane.kinds.service.strategy import STRATEGIES as SERVICE
from kdns.controlplane.kinds.workloads import STRATEGIES as WORKLOADS

_REVIEWS: Final = (
    kinds.SELF_REVIEW,
    kinds.TOKEN_REVIEW,
    kinds.LOCAL_ACCESS_REVIEW,
    kinds.SELF_ACCESS_REVIEW,
    kinds.RULES_REVIEW,
    kinds.ACCESS_REVIEW,
)


class ServedKinds(Catalogue):
    """`custom` adds and removes kinds as CustomResourceDefinitions are stored and deleted."""

    def __init__(self) -> None:
        strategies = {**CORE, **SERVICE, **DISCOVERY, **NODE, **POD, **WORKLOADS, **GENERIC}
        super().__init__(strategies, (version_conversion(AUTOSCALER_V1),), _REVIEWS)
        self.custom = CustomKinds(self)
        self.put(DEFINITION, self.custom.strategy())
        self.definer = DEFINITION, self.custom.define
