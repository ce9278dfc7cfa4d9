"""The strategies of the small kinds of the core group."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kdns.controlplane.apimachinery.kinds import CONFIG_MAP, EVENT, NAMESPACE, SECRET, SERVICE_ACCOUNT, Kind
from kdns.controlplane.kinds.core import columns
from kdns.controlplane.kinds.core.defaults import default_secret
from kdns.controlplane.kinds.core.namespace import default_namespace, new_namespace
from kdns.controlplane.kinds.core.validation import (
    validate_config_map,
    validate_event,
    validate_namespace,
    validate_namespace_finalizers,
    validate_namespace_status,
    validate_secret,
    validate_service_account,
)
from kdns.controlplane.kinds.strategy import COMMON, NAMED, DeleteStrategy, Strategy, SubresourceStrategy, on_create
from kdns.controlplane.storage.field_selectors import FieldLabels, component_of, fields

_INVOLVED: Final = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")

STRATEGIES: Final[Mapping[Kind, Strategy]] = {
    NAMESPACE: Strategy(
        validate_namespace,
        columns.NAMESPACES,
        subresources={
            "status": SubresourceStrategy(validate_namespace_status),
            "finalize": SubresourceStrategy(validate_namespace_finalizers),
        },
        defaults=default_namespace,
        prepare=on_create(new_namespace),
        generation=None,
        field_labels=FieldLabels({**NAMED, **fields("status.phase")}),
        delete=DeleteStrategy(collection=False, protected=frozenset({"default", "kube-public", "kube-system"})),
    ),
    CONFIG_MAP: Strategy(validate_config_map, columns.CONFIG_MAPS, generation=None),
    SECRET: Strategy(
        validate_secret,
        columns.SECRETS,
        defaults=default_secret,
        generation=None,
        field_labels=FieldLabels({**COMMON, **fields("type")}),
    ),
    SERVICE_ACCOUNT: Strategy(
        validate_service_account, columns.SERVICE_ACCOUNTS, generation=None, delete=DeleteStrategy(returns_object=True)
    ),
    EVENT: Strategy(
        validate_event,
        columns.EVENTS,
        generation=None,
        field_labels=FieldLabels(
            {
                **COMMON,
                **fields(*(f"involvedObject.{name}" for name in _INVOLVED), "reason", "reportingComponent", "type"),
                "source": component_of,
            }
        ),
        allow_create_on_update=True,
    ),
}
