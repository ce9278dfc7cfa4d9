"""meta/v1 LabelSelector as objects spell it: what it selects, and what is wrong with it."""

from __future__ import annotations

from kdns.cluster.selectors import Requirement, Selector
from kdns.controlplane import formats
from kdns.controlplane.causes import each, forbidden, invalid_value, required
from kdns.controlplane.kinds import Json
from kdns.controlplane.status import Cause
from kdns.controlplane.validation import validate_labels

_OPERATORS = {"In": "in", "NotIn": "notin", "Exists": "exists", "DoesNotExist": "!"}


def selector_of(label_selector: Json) -> Selector:
    """The selector; an empty LabelSelector selects everything. KeyError for an operator that is none."""
    labels = sorted((label_selector.get("matchLabels") or {}).items())
    expressions = label_selector.get("matchExpressions") or []
    return Selector(
        (
            *(Requirement(key, "=", (value,)) for key, value in labels),
            *(
                Requirement(row["key"], _OPERATORS[row["operator"]], tuple(row.get("values") or ()))
                for row in expressions
            ),
        )
    )


def validate_label_selector(path: str, label_selector: Json) -> list[Cause]:
    """Labels are labels, operators known, and values where the operator wants them."""
    causes = validate_labels(f"{path}.matchLabels", label_selector.get("matchLabels"))
    for index, row in enumerate(label_selector.get("matchExpressions") or []):
        at, operator, values = f"{path}.matchExpressions[{index}]", row.get("operator") or "", row.get("values") or []
        if operator in {"In", "NotIn"} and not values:
            causes.append(required(f"{at}.values", "must be specified when `operator` is 'In' or 'NotIn'"))
        elif operator in {"Exists", "DoesNotExist"} and values:
            why = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
            causes.append(forbidden(f"{at}.values", why))
        elif operator not in _OPERATORS:
            causes.append(invalid_value(f"{at}.operator", operator, "not a valid selector operator"))
        causes += each(f"{at}.key", row.get("key") or "", formats.qualified_name(row.get("key") or ""))
        for place, value in enumerate(values):
            causes += each(f"{at}.values[{place}]", value, formats.label_value(value))
    return causes


def is_empty(label_selector: Json) -> bool:
    """Whether it would select everything."""
    return not (label_selector.get("matchLabels") or label_selector.get("matchExpressions"))
