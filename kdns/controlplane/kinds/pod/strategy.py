"""The strategy of Pods."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kdns.controlplane.apimachinery.kinds import POD, Json, Kind
from kdns.controlplane.kinds.pod import columns
from kdns.controlplane.kinds.pod.defaults import (
    admitted,
    counted_pod,
    default_pod,
    first_pod_status,
    pod_with_status,
)
from kdns.controlplane.kinds.pod.pod import grace_period_s
from kdns.controlplane.kinds.pod.validation import validate_pod, validate_pod_status
from kdns.controlplane.kinds.strategy import COMMON, DeleteStrategy, Strategy, SubresourceStrategy
from kdns.controlplane.storage.field_selectors import FieldLabels, fields, flag, no_value


def _prepare_pod(new: Json, old: Json | None) -> Json:
    pod = admitted(new, old)
    return pod if old else {**pod, "status": first_pod_status(pod)}


STRATEGIES: Final[Mapping[Kind, Strategy]] = {
    POD: Strategy(
        validate_pod,
        columns.PODS,
        defaults=default_pod,
        prepare=_prepare_pod,
        subresources={"status": SubresourceStrategy(validate_pod_status, pod_with_status)},
        generation=counted_pod,
        field_labels=FieldLabels(
            {
                **COMMON,
                **fields("spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName"),
                **fields("status.phase", "status.podIP", "status.nominatedNodeName"),
                "spec.host": fields("spec.nodeName")["spec.nodeName"],
                "spec.hostNetwork": flag("spec.hostNetwork"),
                "status.podIPs": no_value,
            }
        ),
        delete=DeleteStrategy(returns_object=True, grace_s=grace_period_s),
    ),
}
