"""The strategy of Nodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kdns.controlplane.apimachinery.kinds import NODE, Kind
from kdns.controlplane.kinds.node import columns
from kdns.controlplane.kinds.node.validation import default_node, validate_node, validate_node_update
from kdns.controlplane.kinds.strategy import NAMED, Strategy, SubresourceStrategy
from kdns.controlplane.storage.field_selectors import FieldLabels, flag

STRATEGIES: Final[Mapping[Kind, Strategy]] = {
    NODE: Strategy(
        validate_node,
        columns.NODES,
        defaults=default_node,
        subresources={"status": SubresourceStrategy(validate_node_update)},
        generation=None,
        field_labels=FieldLabels({**NAMED, "spec.unschedulable": flag("spec.unschedulable")}),
    ),
}
