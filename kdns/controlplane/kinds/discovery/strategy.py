"""The strategies of Endpoints and EndpointSlices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kdns.controlplane.apimachinery.kinds import ENDPOINT_SLICE, ENDPOINTS, Kind
from kdns.controlplane.kinds import warnings
from kdns.controlplane.kinds.discovery import columns
from kdns.controlplane.kinds.discovery.defaults import default_endpoint_slice, default_endpoints
from kdns.controlplane.kinds.discovery.validation import validate_endpoint_slice, validate_endpoints
from kdns.controlplane.kinds.strategy import Strategy
from kdns.controlplane.storage.object_meta import content_and_labels

STRATEGIES: Final[Mapping[Kind, Strategy]] = {
    ENDPOINTS: Strategy(
        validate_endpoints,
        columns.ENDPOINTS,
        defaults=default_endpoints,
        generation=None,
        warnings=warnings.endpoints_warnings,
        allow_create_on_update=True,
    ),
    ENDPOINT_SLICE: Strategy(
        validate_endpoint_slice,
        columns.ENDPOINT_SLICES,
        defaults=default_endpoint_slice,
        generation=content_and_labels,
        warnings=warnings.endpoint_slice_warnings,
    ),
}
