"""LabelSelectors of objects (meta/v1): parsing, validation, and their text."""

from __future__ import annotations

from kdns.cluster.selectors import Requirement, Selector
from kdns.controlplane.apimachinery import formats
from kdns.controlplane.apimachinery.errors import Cause
from kdns.controlplane.apimachinery.field_errors import forbidden, invalid_value, invalid_values, required
from kdns.controlplane.apimachinery.kinds import Json
from kdns.controlplane.kinds.validation import validate_labels

_OPERATORS = {"In": "in", "NotIn": "notin", "Exists": "exists", "DoesNotExist": "!"}


def selector_of(label_selector: Json) -> Selector:
    """Returns the selector; an empty LabelSelector selects everything. Raises KeyError for an unknown operator."""
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
    """Checks labels, operators, and that there are values if the operator takes them."""
    causes = validate_labels(f"{path}.matchLabels", label_selector.get("matchLabels"))
    for index, row in enumerate(label_selector.get("matchExpressions") or []):
        at, operator = f"{path}.matchExpressions[{index}]", row.get("operator") or ""
        causes += operator_problems(at, row)
        if operator not in _OPERATORS:
            causes.append(invalid_value(f"{at}.operator", operator, "not a valid selector operator"))
        causes += key_problems(at, row)
    return causes


def operator_problems(at: str, requirement: Json) -> list[Cause]:
    operator, values = requirement.get("operator"), requirement.get("values")
    if operator in {"In", "NotIn"} and not values:
        return [required(f"{at}.values", "must be specified when `operator` is 'In' or 'NotIn'")]
    if operator in {"Exists", "DoesNotExist"} and values:
        return [forbidden(f"{at}.values", "may not be specified when `operator` is 'Exists' or 'DoesNotExist'")]
    return []


def key_problems(at: str, requirement: Json) -> list[Cause]:
    """Validates a label's key and values."""
    key = requirement.get("key") or ""
    causes = invalid_values(f"{at}.key", key, formats.qualified_name(key))
    for place, value in enumerate(requirement.get("values") or []):
        causes += invalid_values(f"{at}.values[{place}]", value, formats.label_value(value))
    return causes


def is_empty(label_selector: Json) -> bool:
    """Returns whether it selects everything."""
    return not (label_selector.get("matchLabels") or label_selector.get("matchExpressions"))


def selector_text(selector: Json) -> str:
    """Returns a LabelSelector, or a plain map of labels, as the value of a labelSelector parameter."""
    if not {"matchLabels", "matchExpressions"} & set(selector):
        return ",".join(f"{key}={value}" for key, value in sorted(selector.items()))
    parts = [(key, f"{key}={value}") for key, value in (selector.get("matchLabels") or {}).items()]
    parts += [(each.get("key", ""), _requirement(each)) for each in selector.get("matchExpressions") or ()]
    return ",".join(text for _, text in sorted(parts))


def _requirement(expression: Json) -> str:
    key, values = expression.get("key", ""), ",".join(sorted(expression.get("values") or ()))
    match expression.get("operator"):
        case "In":
            return f"{key} in ({values})"
        case "NotIn":
            return f"{key} notin ({values})"
        case "Exists":
            return str(key)
        case _:
            return f"!{key}"
