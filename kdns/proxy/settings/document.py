"""A KubeProxyConfiguration document to Settings and back, with every mistake in its types at once.

Unknown fields are ignored, as kube-proxy does when it decodes v1alpha1 once more without strictness. They are named, so
that a misspelt setting is not lost unnoticed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass, replace
from typing import Any, Final, TypeAlias, TypeVar, get_args, get_origin, get_type_hints

from kdns.durations import format_duration, parse_duration
from kdns.net import VERSION, join_host_port, parse_unmapped_address
from kdns.proxy.modes import sections
from kdns.proxy.settings.section import Problem, api_name
from kdns.proxy.settings.settings import API_VERSION, HEALTHZ_PORT, KIND, METRICS_PORT, Settings
from kdns.spelling import closest

Json: TypeAlias = dict[str, Any]
T = TypeVar("T")

_TYPE_META: Final = frozenset({"apiVersion", "kind", "metadata"})
_NAMES: Final = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text",
    tuple: "a list",
    Mapping: "names with true or false",
}
_ACCEPTED: Final = {bool: (bool,), int: (int,), float: (int, float), str: (str, int)}
"""The types of values in a file, by their fields': a version may be written without quotes."""
_INT32: Final = range(-(1 << 31), 1 << 31)
_NO_VALUE: Final[tuple[object, ...]] = (None, "", "0", "0s", 0, [], {})
NOT_SUPPORTED: Final = "not supported, see docs/proxy-config.md"
_UNSUPPORTED: Final[Mapping[str, tuple[object, ...]]] = {
    "logging.flushFrequency": ("5s", 5_000_000_000),
    "logging.options": (),
    "logging.vmodule": (),
    "windowsRunAsService": (),
}
"""kube-proxy's fields that have to be empty or to have their defaults, by their paths."""


_REMOVED: Final = {
    "conntrack.max": "kube-proxy has removed it; maxPerCore and min set the limit",
    "resourceContainer": "kube-proxy has removed it; containers are the kubelet's",
}
"""Fields of earlier releases, by their paths."""


def decoded(document: object) -> tuple[Settings, list[Problem]]:
    """Returns the settings, with defaults where a field has a mistake; the mistakes, and fields that are ignored."""
    if not isinstance(document, dict):
        return Settings(), [Problem("", f"expected an object of kind {KIND}")]
    problems = list(_of_another_kind(document))
    if document.get("kind") != KIND and document.get("apiVersion") != API_VERSION:
        return Settings(), problems
    general = {name: value for name, value in document.items() if name not in _TYPE_META}
    settings = Settings()
    for kind in sections():
        path = f"{kind.PATH}." if kind.PATH else ""
        own = (
            general.pop(kind.PATH, None)
            if path
            else {name: general.pop(name) for name in _names(kind) if name in general}
        )
        settings = settings.with_section(_object(kind, own, path, problems))
    settings = replace(_object(Settings, general, "", problems), sections=settings.sections)
    return _addressed(settings, document), problems


def encoded(settings: Settings) -> Json:
    document = {"apiVersion": API_VERSION, "kind": KIND, **_written(settings)}
    for kind in sections():
        part = _written(settings.section(kind))
        document |= {kind.PATH: part} if kind.PATH else part
    return document


def with_port(address: str, port: int) -> str:
    """Returns the address with a port; text other than a bare address is returned unchanged."""
    parsed = parse_unmapped_address(address)
    if parsed is None:
        return address
    return join_host_port(address, port)


def _addressed(settings: Settings, document: Json) -> Settings:
    """Defaults of the HTTP servers: the family of the bind address, and kube-proxy's ports."""
    bind = parse_unmapped_address(settings.bind_address)
    anywhere, here = ("::", "::1") if bind and bind.version == VERSION["IPv6"] else ("0.0.0.0", "127.0.0.1")
    healthz, metrics = settings.healthz_bind_address, settings.metrics_bind_address
    return replace(
        settings,
        healthz_bind_address=with_port(healthz if document.get("healthzBindAddress") else anywhere, HEALTHZ_PORT),
        metrics_bind_address=with_port(metrics if document.get("metricsBindAddress") else here, METRICS_PORT),
    )


def _of_another_kind(document: Json) -> Iterator[Problem]:
    for name, wanted in (("apiVersion", API_VERSION), ("kind", KIND)):
        if document.get(name) != wanted:
            reason = f"got {document[name]!r}" if document.get(name) else "it is missing"
            yield Problem(name, f"expected {wanted}, {reason}")


def _object(cls: type[T], given: object, path: str, problems: list[Problem]) -> T:
    if given is None:
        return cls()
    if not isinstance(given, dict):
        problems.append(Problem(path.removesuffix("."), f"expected an object, got {_shown(given)}"))
        return cls()
    known = _names(cls)
    hints = get_type_hints(cls)
    values: dict[str, Any] = {}
    for name, value in given.items():
        at = f"{path}{name}"
        if at in _UNSUPPORTED:
            if not _is_empty(value) and value not in _UNSUPPORTED[at]:
                problems.append(Problem(at, NOT_SUPPORTED))
            continue
        if name not in known:
            problems.append(Problem(at, _unknown(at, known), is_ignored=True))
            continue
        field = known[name]
        part = None if value is None else _value(hints[field.name], field.name, value, at, problems)
        if part is not None and (part or field.metadata.get("pointer") or not _default(field)):
            values[field.name] = part
    return cls(**values)


def _names(cls: type) -> dict[str, Field[Any]]:
    return {api_name(field.name): field for field in fields(cls) if field.name != "sections"}


def _is_empty(value: object) -> bool:
    return all(map(_is_empty, value.values())) if isinstance(value, dict) else value in _NO_VALUE


def _value(wanted: Any, name: str, given: object, path: str, problems: list[Problem]) -> Any:
    """Returns the value in the type of its field; None if it has another, which is added to the problems."""
    if is_dataclass(wanted):
        return _object(wanted, given, f"{path}.", problems)  # type: ignore[arg-type]
    kind = get_origin(wanted) or wanted
    if kind is tuple and isinstance(given, list):
        items = (_value(get_args(wanted)[0], "", item, f"{path}[{at}]", problems) for at, item in enumerate(given))
        return tuple(item for item in items if item is not None)
    if kind is Mapping and isinstance(given, dict):
        gates = {gate: _value(bool, "", is_on, f"{path}.{gate}", problems) for gate, is_on in given.items()}
        return {gate: is_on for gate, is_on in gates.items() if is_on is not None}
    if name.endswith("_s"):
        return _duration(given, path, problems)
    if isinstance(given, _ACCEPTED.get(kind, ())) and (kind is bool or not isinstance(given, bool)):
        if kind is not int or given in _INT32:
            return str(given) if kind is str else given
        problems.append(Problem(path, f"expected a number of 32 bits, got {given}"))
        return None
    problems.append(Problem(path, f"expected {_NAMES[kind]}, got {_shown(given)}"))
    return None


def _duration(given: object, path: str, problems: list[Problem]) -> float | None:
    expected = "expected a duration such as 30s or 1h30m"
    try:
        if isinstance(given, str):
            return parse_duration(given)
        problems.append(Problem(path, f"{expected}, got {_shown(given)}"))
    except ValueError as error:
        problems.append(Problem(path, f"{error}; {expected}"))
    return None


def _default(each: Field[Any]) -> object:
    return each.default if each.default is not MISSING else None


def _unknown(path: str, known: Mapping[str, object]) -> str:
    if path in _REMOVED:
        return f"is ignored, {_REMOVED[path]}"
    lower = {field.lower(): field for field in known}
    meant = closest(path.rpartition(".")[2].lower(), lower)
    return "is ignored, there is no such field" + (f"; did you mean {lower[meant]}?" if meant else "")


def _shown(value: object) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case dict():
            return "an object"
        case list():
            return "a list"
        case str():
            return f'"{value}"'
        case _:
            return str(value)


def _written(value: Any, name: str = "") -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return {key: _written(getattr(value, field.name), field.name) for key, field in _names(type(value)).items()}
    if isinstance(value, tuple):
        return [_written(item) for item in value]
    if name.endswith("_s"):
        return format_duration(value)
    return dict(value) if isinstance(value, Mapping) else value
