"""Makes the files of deploy/chart that follow from others: the schema of its values, and renderings for tests.

python -m tools.chart

It needs Helm as a library: pip install helm-python-sdk. Tests hold that each rendering is of the chart as it is now.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, Final

import yaml

ROOT: Final = Path(__file__).parents[1]
CHART: Final = ROOT / "deploy/chart/kdns"
RENDERED: Final = ROOT / "tests/golden/chart"
RELEASE: Final = ("kdns", "kube-system")
"""The name and the namespace of the release."""

_OPEN: Final = frozenset(
    {
        "affinity",
        "additionalLabels",
        "annotations",
        "behavior",
        "customAnnotations",
        "customLabels",
        "extraConfig",
        "livenessProbe",
        "nodeSelector",
        "podAnnotations",
        "podDisruptionBudget",
        "podSecurityContext",
        "readinessProbe",
        "resources",
        "rollingUpdate",
        "securityContext",
    }
)
"""Values whose keys the chart does not decide on."""
_TEXT: Final = {"type": "string"}
_NUMBER: Final = {"type": "integer"}


def schema() -> str:
    """Returns values.schema.json: every value of values.yaml, and no other."""
    values = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    made = _schema_of("", values)
    made["properties"] |= {"servers": _list(_SERVER), "global": {"type": "object"}}
    return json.dumps({"$schema": "http://json-schema.org/draft-07/schema#", **made}, indent=2) + "\n"


def _schema_of(name: str, value: Any) -> dict[str, Any]:
    if isinstance(value, dict) and name not in _OPEN:
        return _object({key: _schema_of(key, each) for key, each in value.items()})
    kinds = {bool: "boolean", int: "integer", str: "string", list: "array", dict: "object"}
    return {"type": kinds[type(value)]}


def _object(properties: dict[str, Any], *required: str) -> dict[str, Any]:
    made = {"type": "object", "additionalProperties": False, "properties": properties}
    return {**made, "required": list(required)} if required else made


def _list(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items}


_SERVER: Final = _object(
    {
        "zones": _list(_object({"zone": _TEXT, "scheme": _TEXT, "use_tcp": {"type": "boolean"}})),
        "port": _NUMBER,
        "nodePort": _NUMBER,
        "plugins": _list(
            _object({"name": _TEXT, "parameters": {"type": ["string", "number"]}, "configBlock": _TEXT}, "name")
        ),
    },
    "plugins",
)
"""A server block; `use_tcp` is accepted for values of CoreDNS's chart: kdns serves dns:// over TCP too."""


def cases() -> dict[str, str]:
    """Returns the values of each rendering, by name."""
    files = sorted(RENDERED.glob("*.values.yaml"))
    return {path.name.removesuffix(".values.yaml"): path.read_text(encoding="utf-8") for path in files}


def digest(values: str) -> str:
    """Returns what a rendering depends on: the files of the chart and these values."""
    found = hashlib.sha256(values.encode())
    for path in sorted(path for path in CHART.rglob("*") if path.is_file()):
        found.update(f"{path.relative_to(CHART)}\n".encode() + path.read_bytes())
    return found.hexdigest()


def rendered(values: dict[str, Any]) -> str:
    """Returns the objects of a release as YAML; helm_python.HelmError for invalid values."""
    import helm_python  # noqa: PLC0415 - not among the dependencies

    name, namespace = RELEASE
    with helm_python.Chart.load(CHART) as chart:
        chart.validate_schema(chart.merge_values(values))
        texts: dict[str, str] = chart.render(values, name=name, namespace=namespace)
    documents = [f"---\n# {path}\n{text.strip()}\n" for path, text in sorted(texts.items()) if path.endswith(".yaml")]
    return "".join(document for document in documents if "\nkind: " in document)


if __name__ == "__main__":
    (CHART / "values.schema.json").write_text(schema(), encoding="utf-8")
    for case, given in cases().items():
        text = f"# By python -m tools.chart, of {digest(given)}\n{rendered(yaml.safe_load(given))}"
        (RENDERED / f"{case}.yaml").write_text(text, encoding="utf-8")
