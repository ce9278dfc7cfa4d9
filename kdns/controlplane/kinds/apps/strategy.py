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
from kdns.controlplane.kinds.strategy import COMMON, Strategy, status, with_metadata_of_old
from kdns.controlplane.storage.field_selectors import FieldLabels, count

_NO_REPLICAS: Final = status({"replicas": 0})
_NO_DAEMONS: Final = status(
    {"currentNumberScheduled": 0, "desiredNumberScheduled": 0, "numberMisscheduled": 0, "numberReady": 0}
)

STRATEGIES: Final[Mapping[Kind, Strategy]] = {
    DEPLOYMENT: Strategy(
        validate_deployment,
        columns.DEPLOYMENTS,
        defaults=default_deployment,
        prepare_status=with_metadata_of_old("labels"),
        first_status=status({}),
        makes_objects=True,
    ),
    REPLICA_SET: Strategy(
        validate_replica_set,
        columns.REPLICAS,
        defaults=default_replica_set,
        first_status=_NO_REPLICAS,
        makes_objects=True,
    ),
    REPLICATION_CONTROLLER: Strategy(
        validate_replication_controller,
        columns.REPLICAS,
        defaults=default_replication_controller,
        first_status=_NO_REPLICAS,
        field_labels=FieldLabels({**COMMON, "status.replicas": count("status.replicas")}),
        orphan_dependents=True,
        makes_objects=True,
    ),
    STATEFUL_SET: Strategy(
        validate_stateful_set,
        columns.STATEFUL_SETS,
        defaults=default_stateful_set,
        first_status=status({"availableReplicas": 0, "replicas": 0}),
        makes_objects=True,
    ),
    DAEMON_SET: Strategy(
        validate_daemon_set,
        columns.DAEMON_SETS,
        defaults=default_daemon_set,
        prepare=counted_template,
        first_status=_NO_DAEMONS,
        makes_objects=True,
    ),
    CONTROLLER_REVISION: Strategy(validate_controller_revision, columns.CONTROLLER_REVISIONS, generation=None),
}
