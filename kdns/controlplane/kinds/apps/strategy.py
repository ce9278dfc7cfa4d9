"""The strategies of the workloads that keep Pods."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kdns.controlplane.apimachinery.kinds import (
    CONTROLLER_REVISION,
    DAEMON_SET,
    DEPLOYMENT,
    REPLICA_SET,
    REPLICATION_CONTROLLER,
    STATEFUL_SET,
    Json,
    Kind,
)
from kdns.controlplane.kinds.apps import columns
from kdns.controlplane.kinds.apps.defaults import (
    counted_template,
    default_daemon_set,
    default_deployment,
    default_replica_set,
    default_replication_controller,
    default_stateful_set,
)
from kdns.controlplane.kinds.apps.validation import (
    validate_controller_revision,
    validate_daemon_set,
    validate_deployment,
    validate_replica_set,
    validate_replication_controller,
    validate_stateful_set,
)
from kdns.controlplane.kinds.strategy import (
    COMMON,
    DeleteStrategy,
    Strategy,
    SubresourceStrategy,
    on_create,
    with_metadata_of_old,
    with_status,
)
from kdns.controlplane.storage.field_selectors import FieldLabels, count

_NO_REPLICAS: Final = on_create(with_status({"replicas": 0}))
_NO_DAEMONS: Final = on_create(
    with_status({"currentNumberScheduled": 0, "desiredNumberScheduled": 0, "numberMisscheduled": 0, "numberReady": 0})
)
_MAKES_OBJECTS: Final = DeleteStrategy(makes_objects=True)


def _prepare_daemon_set(new: Json, old: Json | None) -> Json:
    return _NO_DAEMONS(counted_template(new, old), old)


STRATEGIES: Final[Mapping[Kind, Strategy]] = {
    DEPLOYMENT: Strategy(
        validate_deployment,
        columns.DEPLOYMENTS,
        defaults=default_deployment,
        prepare=on_create(with_status({})),
        subresources={"status": SubresourceStrategy(prepare=with_metadata_of_old("labels"))},
        delete=_MAKES_OBJECTS,
    ),
    REPLICA_SET: Strategy(
        validate_replica_set,
        columns.REPLICAS,
        defaults=default_replica_set,
        prepare=_NO_REPLICAS,
        delete=_MAKES_OBJECTS,
    ),
    REPLICATION_CONTROLLER: Strategy(
        validate_replication_controller,
        columns.REPLICAS,
        defaults=default_replication_controller,
        prepare=_NO_REPLICAS,
        field_labels=FieldLabels({**COMMON, "status.replicas": count("status.replicas")}),
        delete=DeleteStrategy(orphans=True, makes_objects=True),
    ),
    STATEFUL_SET: Strategy(
        validate_stateful_set,
        columns.STATEFUL_SETS,
        defaults=default_stateful_set,
        prepare=on_create(with_status({"availableReplicas": 0, "replicas": 0})),
        delete=_MAKES_OBJECTS,
    ),
    DAEMON_SET: Strategy(
        validate_daemon_set,
        columns.DAEMON_SETS,
        defaults=default_daemon_set,
        prepare=_prepare_daemon_set,
        delete=_MAKES_OBJECTS,
    ),
    CONTROLLER_REVISION: Strategy(validate_controller_revision, columns.CONTROLLER_REVISIONS, generation=None),
}
