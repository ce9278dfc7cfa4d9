"""One row per kind: how its objects are defaulted, prepared, validated, selected, printed and deleted.

A row is what kube-apiserver calls a strategy (pkg/registry/*/strategy.go, with the options of registry.Store).
Everything that differs by kind is an attribute; registry.py, the verbs and deletion read it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Protocol, TypeAlias

from kdns.cluster.objects import Key
from kdns.controlplane.meta import formats
from kdns.controlplane.meta.errors import Cause
from kdns.controlplane.meta.formats import Format
from kdns.controlplane.meta.kinds import (
    API_SERVICE,
    CLAIM,
    CONFIG_MAP,
    CONTROLLER_REVISION,
    CRON_JOB,
    DAEMON_SET,
    DEPLOYMENT,
    DISRUPTION_BUDGET,
    ENDPOINT_SLICE,
    ENDPOINTS,
    EVENT,
    GENERIC,
    IP_ADDRESS,
    JOB,
    LEASE,
    NAMESPACE,
    NODE,
    POD,
    REPLICA_SET,
    REPLICATION_CONTROLLER,
    RESOURCE_SLICE,
    SECRET,
    SERVICE,
    SERVICE_ACCOUNT,
    SERVICE_CIDR,
    SIGNING_REQUEST,
    STATEFUL_SET,
    VOLUME,
    Json,
    Kind,
)
from kdns.controlplane.resources import columns, warnings
from kdns.controlplane.resources.apps import columns as apps_columns
from kdns.controlplane.resources.apps.defaults import (
    counted_template,
    default_daemon_set,
    default_deployment,
    default_replica_set,
    default_replication_controller,
    default_stateful_set,
)
from kdns.controlplane.resources.apps.validation import (
    validate_controller_revision,
    validate_daemon_set,
    validate_deployment,
    validate_replica_set,
    validate_replication_controller,
    validate_stateful_set,
)
from kdns.controlplane.resources.batch import columns as batch_columns
from kdns.controlplane.resources.batch.defaults import default_job, with_job_selector
from kdns.controlplane.resources.batch.validation import validate_job
from kdns.controlplane.resources.columns import Printer
from kdns.controlplane.resources.core import columns as core_columns
from kdns.controlplane.resources.core.defaults import default_secret
from kdns.controlplane.resources.core.namespace import (
    default_namespace,
    namespace_finalizers,
    new_namespace,
    terminating_namespace,
)
from kdns.controlplane.resources.core.validation import (
    validate_config_map,
    validate_event,
    validate_namespace,
    validate_namespace_finalizers,
    validate_namespace_status,
    validate_secret,
    validate_service_account,
)
from kdns.controlplane.resources.discovery import columns as discovery_columns
from kdns.controlplane.resources.discovery.defaults import default_endpoint_slice, default_endpoints
from kdns.controlplane.resources.discovery.validation import validate_endpoint_slice, validate_endpoints
from kdns.controlplane.resources.generic import columns as generic_columns
from kdns.controlplane.resources.generic import defaults as generic_defaults
from kdns.controlplane.resources.generic.signing_requests import unchanged_request
from kdns.controlplane.resources.node import columns as node_columns
from kdns.controlplane.resources.node.validation import default_node, validate_node, validate_node_update
from kdns.controlplane.resources.pod import columns as pod_columns
from kdns.controlplane.resources.pod.defaults import (
    admitted,
    counted_pod,
    default_pod,
    first_pod_status,
    pod_with_status,
)
from kdns.controlplane.resources.pod.pod import grace_period_s
from kdns.controlplane.resources.pod.validation import validate_ephemeral_containers, validate_pod, validate_pod_status
from kdns.controlplane.resources.policy import columns as policy_columns
from kdns.controlplane.resources.policy.validation import validate_disruption_budget
from kdns.controlplane.resources.service import columns as service_columns
from kdns.controlplane.resources.service.allocation import ServiceAllocator
from kdns.controlplane.resources.service.allocator import Transaction
from kdns.controlplane.resources.service.defaults import default_service
from kdns.controlplane.resources.service.ip_families import fill_on_read
from kdns.controlplane.resources.service.service_cidr import (
    ip_address_of,
    names_of,
    service_of,
    validate_ip_address,
    validate_service_cidr,
)
from kdns.controlplane.resources.service.spec import addresses_of
from kdns.controlplane.resources.service.validation import (
    validate_load_balancer_status,
    validate_service,
    validate_service_update,
)
from kdns.controlplane.resources.validation import validate_meta, validate_meta_update
from kdns.controlplane.storage.field_selectors import (
    OBJECT_META,
    FieldLabels,
    component_of,
    count,
    fields,
    flag,
    no_value,
)
from kdns.controlplane.storage.object_meta import content, content_and_labels, with_metadata_of
from kdns.controlplane.storage.watch import StoredObject

Rules: TypeAlias = Callable[[Json, Json | None], list[Cause]]
"""The violated rules of an object; the second argument is the stored one on update, None on create."""


def _unchanged(obj: Json) -> Json:
    return obj


def _update_unchanged(new: Json, _old: Json | None) -> Json:
    return new


def _status_update(new: Json, _old: Json) -> Json:
    return new


def _with_metadata_of_old(*fields: str) -> Callable[[Json, Json], Json]:
    def kept(new: Json, old: Json) -> Json:
        return with_metadata_of(new, old, fields)

    return kept


def _no_warnings(_obj: Json) -> Iterable[str]:
    return ()


def _no_grace_s(_obj: Json, _requested_s: int | None) -> int:
    return 0


def _nothing_stored(_numbers: ServiceAllocator, _obj: Json) -> None:
    pass


class Allocate(Protocol):
    """Allocates the numbers of an object that replaces `old` (None: a new one), and sets it in the object."""

    def __call__(
        self, allocator: ServiceAllocator, new: Json, old: Json | None, txn: Transaction, /, *, dry_run: bool
    ) -> None:
        """Raises 422 for a value that is not available, 500 for a full range; `txn` reverts or commits."""
        ...


@dataclass(frozen=True, slots=True)
class OwnedObjects:
    """Objects of another kind that an object owns, one for each of its `names`.

    `source` is the value from which the names derive; it is cheap to compare. `make` returns an owned object, `owner`
    the key of its owner.
    """

    kind: Kind
    source: Callable[[Json], list[str]]
    names: Callable[[Json | None], set[str]]
    make: Callable[[Key, str], Json]
    owner: Callable[[Json], Key | None]


@dataclass(frozen=True, slots=True)
class Strategy:
    """The rules of one kind; the defaults of attributes suit a kind that is stored and printed.

    A write applies, in this order: `defaults`; on create `prepare_create`; `prepare`; `allocate`; on create
    `first_status`; `validate`.
    """

    validate: Rules
    printer: Printer
    defaults: Callable[[Json], Json] = _unchanged
    prepare_create: Callable[[Json], Json] = _unchanged
    prepare: Callable[[Json, Json | None], Json] = _update_unchanged
    allocate: Allocate | None = None
    """Allocates addresses and ports."""

    first_status: Callable[[Json], Json] | None = None
    prepare_status: Callable[[Json, Json], Json] = _status_update
    """The object after an update of its status, and the stored one → the object with allowed changes only."""

    validate_subresource: Mapping[str, Rules] = field(default_factory=dict)
    """Subresource → the rules of an update through it, beside those of metadata."""

    on_read: Callable[[Json, tuple[str, ...]], Json] | None = None
    """Fills in fields that older versions of kdns did not store; the second argument: the families of the cluster."""

    generation: Callable[[Json], Json] | None = content
    """The part of an object whose changes metadata.generation counts; None for a kind without generation."""

    field_labels: FieldLabels = OBJECT_META
    warnings: Callable[[Json], Iterable[str]] = _no_warnings
    """Texts for the Warning header of a write."""

    deprecation: str = ""
    """The text of the Warning header of every request."""

    allow_create_on_update: bool = False
    allow_unconditional_update: bool = True
    """Whether a PUT need not say which resourceVersion it replaces."""

    return_deleted_object: bool = False
    """Whether DELETE answers with the object, not with a Status."""

    delete_collection: bool = True
    orphan_dependents: bool = False
    """Whether a DELETE without propagationPolicy orphans dependents."""

    deletion_warning: str = ""
    """The text of the Warning header of a DELETE without propagationPolicy."""

    protected: frozenset[str] = frozenset()
    """The names of objects that cannot be deleted."""

    grace_s: Callable[[Json, int | None], int] = _no_grace_s
    """Object and gracePeriodSeconds of the request → the seconds that a deleted object stays."""

    is_graceful: bool = False
    """Whether the last state of a deleted object says when it was deleted."""

    spec_finalizers: Callable[[Json], Sequence[str]] | None = None
    """spec.finalizers of an object that contains others (a Namespace): its content is deleted before it."""

    terminating: Callable[[Json], Json] = _unchanged
    """The object at the beginning of its deletion."""

    makes_objects: bool = False
    """Whether controllers make further objects for it: in a terminating Namespace it is deleted first."""

    owned_objects: OwnedObjects | None = None
    """Objects of another kind that are made and removed together with it."""

    stored: Callable[[ServiceAllocator, Json], None] = _nothing_stored
    deleted: Callable[[ServiceAllocator, Json], None] = _nothing_stored
    """The effects of a stored and a deleted object on the allocations."""

    restored: Callable[[ServiceAllocator, StoredObject], list[str]] | None = None
    """Restores the allocations of a stored object; returns unavailable ones."""


def _validate_new_and_changed_service(new: Json, old: Json | None) -> list[Cause]:
    return validate_service_update(new, old) if old else validate_service(new)


def _validate_service_status(new: Json, old: Json | None) -> list[Cause]:
    return validate_load_balancer_status(new, old or {}, path="status.loadBalancer")


def _status(status: Json) -> Callable[[Json], Json]:
    return lambda _: status


def _restored_address(numbers: ServiceAllocator, version: StoredObject) -> list[str]:
    """Reads the name alone: at start most IPAddresses need not be decoded."""
    numbers.reserve(version.key[1])
    return []


def _restored_range(numbers: ServiceAllocator, version: StoredObject) -> list[str]:
    numbers.service_cidr(version.key[1], version.obj)
    return []


_NAMES: Final[dict[str, Format]] = {"rbac.authorization.k8s.io": formats.path_segment}
"""API group → the format of its names, if it is not a DNS subdomain."""


def generic(kind: Kind) -> Strategy:
    """Returns the strategy of a kind that nothing acts on: beside its schema, metadata alone is validated."""
    name = _NAMES.get(kind.group, formats.dns_subdomain)

    def validate(new: Json, old: Json | None) -> list[Cause]:
        causes = validate_meta_update(old, new) if old else []
        return causes + validate_meta(new, name, namespaced=kind.namespaced)

    printer = generic_columns.PRINTERS.get(kind.resource) or columns.printer_of(kind.columns)
    return Strategy(
        validate,
        printer,
        defaults=generic_defaults.defaults_of(kind),
        first_status=generic_defaults.first_status_of(kind),
        generation=None if kind.kind in generic_defaults.UNCOUNTED else content,
        return_deleted_object=kind.kind in generic_defaults.RETURNED,
        warnings=lambda _: (warnings.inert(kind),),
    )


_NAMED: Final = fields("metadata.name")
_COMMON: Final = fields("metadata.name", "metadata.namespace")
_INVOLVED: Final = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
_NO_REPLICAS: Final = _status({"replicas": 0})
_NO_DAEMONS: Final = _status(
    {"currentNumberScheduled": 0, "desiredNumberScheduled": 0, "numberMisscheduled": 0, "numberReady": 0}
)
_NO_DISRUPTIONS: Final = _status({"disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0})

STRATEGIES: Final[dict[Kind, Strategy]] = {
    **{kind: generic(kind) for kind in GENERIC},
    # core
    NAMESPACE: Strategy(
        validate_namespace,
        core_columns.NAMESPACES,
        validate_subresource={"status": validate_namespace_status, "finalize": validate_namespace_finalizers},
        defaults=default_namespace,
        prepare_create=new_namespace,
        generation=None,
        field_labels=FieldLabels({**_NAMED, **fields("status.phase")}),
        delete_collection=False,
        protected=frozenset({"default", "kube-public", "kube-system"}),
        spec_finalizers=namespace_finalizers,
        terminating=terminating_namespace,
    ),
    CONFIG_MAP: Strategy(validate_config_map, core_columns.CONFIG_MAPS, generation=None),
    SECRET: Strategy(
        validate_secret,
        core_columns.SECRETS,
        defaults=default_secret,
        generation=None,
        field_labels=FieldLabels({**_COMMON, **fields("type")}),
    ),
    SERVICE_ACCOUNT: Strategy(
        validate_service_account, core_columns.SERVICE_ACCOUNTS, generation=None, return_deleted_object=True
    ),
    EVENT: Strategy(
        validate_event,
        core_columns.EVENTS,
        generation=None,
        field_labels=FieldLabels(
            {
                **_COMMON,
                **fields(*(f"involvedObject.{name}" for name in _INVOLVED), "reason", "reportingComponent", "type"),
                "source": component_of,
            }
        ),
        allow_create_on_update=True,
    ),
    # service
    SERVICE: Strategy(
        _validate_new_and_changed_service,
        service_columns.SERVICES,
        defaults=default_service,
        allocate=ServiceAllocator.allocate,
        first_status=_status({"loadBalancer": {}}),
        validate_subresource={"status": _validate_service_status},
        on_read=fill_on_read,
        generation=None,
        field_labels=FieldLabels({**_COMMON, **fields("spec.clusterIP", "spec.type")}),
        warnings=warnings.service_warnings,
        allow_create_on_update=True,
        return_deleted_object=True,
        owned_objects=OwnedObjects(IP_ADDRESS, addresses_of, names_of, ip_address_of, service_of),
        deleted=ServiceAllocator.release,
        restored=lambda numbers, version: numbers.restore(version.obj),
    ),
    SERVICE_CIDR: Strategy(
        validate_service_cidr,
        service_columns.SERVICE_CIDRS,
        first_status=_status({}),
        generation=None,
        stored=lambda numbers, obj: numbers.service_cidr(obj["metadata"]["name"], obj),
        warnings=warnings.service_cidr_warnings,
        deleted=lambda numbers, obj: numbers.service_cidr(obj["metadata"]["name"], None),
        restored=_restored_range,
    ),
    IP_ADDRESS: Strategy(
        validate_ip_address,
        service_columns.IP_ADDRESSES,
        generation=None,
        stored=lambda numbers, obj: numbers.reserve(obj["metadata"]["name"]),
        deleted=lambda numbers, obj: numbers.unreserve(obj["metadata"]["name"]),
        restored=_restored_address,
    ),
    # discovery
    ENDPOINTS: Strategy(
        validate_endpoints,
        discovery_columns.ENDPOINTS,
        defaults=default_endpoints,
        generation=None,
        warnings=warnings.endpoints_warnings,
        deprecation=warnings.ENDPOINTS_DEPRECATED,
        allow_create_on_update=True,
    ),
    ENDPOINT_SLICE: Strategy(
        validate_endpoint_slice,
        discovery_columns.ENDPOINT_SLICES,
        defaults=default_endpoint_slice,
        generation=content_and_labels,
        warnings=warnings.endpoint_slice_warnings,
    ),
    # nodes and Pods
    NODE: Strategy(
        validate_node,
        node_columns.NODES,
        defaults=default_node,
        validate_subresource={"status": validate_node_update},
        generation=None,
        field_labels=FieldLabels({**_NAMED, "spec.unschedulable": flag("spec.unschedulable")}),
    ),
    POD: Strategy(
        validate_pod,
        pod_columns.PODS,
        defaults=default_pod,
        prepare=admitted,
        first_status=first_pod_status,
        prepare_status=pod_with_status,
        generation=counted_pod,
        validate_subresource={"status": validate_pod_status, "ephemeralcontainers": validate_ephemeral_containers},
        field_labels=FieldLabels(
            {
                **_COMMON,
                **fields("spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName"),
                **fields("status.phase", "status.podIP", "status.nominatedNodeName"),
                "spec.host": fields("spec.nodeName")["spec.nodeName"],
                "spec.hostNetwork": flag("spec.hostNetwork"),
                "status.podIPs": no_value,
            }
        ),
        return_deleted_object=True,
        grace_s=grace_period_s,
        is_graceful=True,
    ),
    # apps and batch
    DEPLOYMENT: Strategy(
        validate_deployment,
        apps_columns.DEPLOYMENTS,
        defaults=default_deployment,
        prepare_status=_with_metadata_of_old("labels"),
        first_status=_status({}),
        makes_objects=True,
    ),
    REPLICA_SET: Strategy(
        validate_replica_set,
        apps_columns.REPLICAS,
        defaults=default_replica_set,
        first_status=_NO_REPLICAS,
        makes_objects=True,
    ),
    REPLICATION_CONTROLLER: Strategy(
        validate_replication_controller,
        apps_columns.REPLICAS,
        defaults=default_replication_controller,
        first_status=_NO_REPLICAS,
        field_labels=FieldLabels({**_COMMON, "status.replicas": count("status.replicas")}),
        orphan_dependents=True,
        makes_objects=True,
    ),
    STATEFUL_SET: Strategy(
        validate_stateful_set,
        apps_columns.STATEFUL_SETS,
        defaults=default_stateful_set,
        first_status=_status({"availableReplicas": 0, "replicas": 0}),
        makes_objects=True,
    ),
    DAEMON_SET: Strategy(
        validate_daemon_set,
        apps_columns.DAEMON_SETS,
        defaults=default_daemon_set,
        prepare=counted_template,
        first_status=_NO_DAEMONS,
        makes_objects=True,
    ),
    CONTROLLER_REVISION: Strategy(validate_controller_revision, apps_columns.CONTROLLER_REVISIONS, generation=None),
    JOB: Strategy(
        validate_job,
        batch_columns.JOBS,
        defaults=default_job,
        prepare_create=with_job_selector,
        first_status=_status({}),
        field_labels=FieldLabels(
            {**_COMMON, "status.successful": count("status.succeeded")},
            'field label "{}" not supported for Job',
        ),
        orphan_dependents=True,
        deletion_warning=warnings.JOBS_ORPHAN,
        makes_objects=True,
    ),
    DISRUPTION_BUDGET: Strategy(
        validate_disruption_budget,
        policy_columns.DISRUPTION_BUDGETS,
        first_status=_NO_DISRUPTIONS,
        allow_unconditional_update=False,
    ),
    # generic kinds with options of their own
    CLAIM: replace(generic(CLAIM), generation=None, return_deleted_object=True),
    VOLUME: replace(generic(VOLUME), generation=None, return_deleted_object=True),
    API_SERVICE: replace(
        generic(API_SERVICE),
        prepare_status=_with_metadata_of_old("labels", "annotations", "finalizers", "ownerReferences"),
    ),
    CRON_JOB: replace(generic(CRON_JOB), makes_objects=True),
    RESOURCE_SLICE: replace(
        generic(RESOURCE_SLICE),
        field_labels=FieldLabels(
            {**_NAMED, **fields("spec.nodeName", "spec.driver")},
            f"field label not supported for {RESOURCE_SLICE.api_version}, Kind=ResourceSlice: {{}}",
        ),
    ),
    SIGNING_REQUEST: replace(
        generic(SIGNING_REQUEST),
        prepare=unchanged_request,
        generation=None,
        field_labels=FieldLabels({**_NAMED, **fields("spec.signerName")}),
    ),
    LEASE: replace(
        generic(LEASE),
        warnings=_no_warnings,  # its holders act on it
        generation=None,
        allow_create_on_update=True,
        allow_unconditional_update=False,
    ),
}
"""Every kind that is stored, and its strategy."""
