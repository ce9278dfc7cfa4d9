"""A KubeProxyConfiguration document to Settings and back, with every mistake in its types at once.

Unknown fields are ignored, as kube-proxy does when it decodes v1alpha1 once more without strictness. They are named, so
that a misspelt setting is not lost unnoticed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
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
_NAMES: Final = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}
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
        try:
            decoded_value = _value(hints[field.name], field.name, value, at, problems)
        except _WrongTypeError as wrong:
            problems.append(Problem(at, str(wrong)))
            continue
        if value is not None and (decoded_value or field.metadata.get("pointer") or not _default(field)):
            values[field.name] = decoded_value
    return cls(**values)


def _names(cls: type) -> dict[str, Field[Any]]:
    return {api_name(field.name): field for field in fields(cls) if field.name != "sections"}


def _is_empty(value: object) -> bool:
    return all(map(_is_empty, value.values())) if isinstance(value, dict) else value in _NO_VALUE


class _WrongTypeError(Exception):
    """A value that is not of its field's type."""


def _value(wanted: Any, name: str, given: object, path: str, problems: list[Problem]) -> Any:
    """Returns the value in the type of its field; mistakes in parts of it are added to the problems."""
    if is_dataclass(wanted):
        return _object(wanted, given, f"{path}.", problems)  # type: ignore[arg-type]
    if given is None:
        return None
    if get_origin(wanted) is tuple:
        return _list(get_args(wanted)[0], given, path, problems)
    if get_origin(wanted) is Mapping:
        return _gates(given, path, problems)
    if name.endswith("_s"):
        return _duration(given)
    return _scalar(wanted, given)


def _scalar(wanted: type, given: object) -> object:
    accepted = (int, float) if wanted is float else (wanted,)
    if not isinstance(given, accepted) or (isinstance(given, bool) and wanted is not bool):
        if wanted is str and isinstance(given, int) and not isinstance(given, bool):
            return str(given)  # a version without quotes
        raise _WrongTypeError(f"expected {_NAMES[wanted]}, got {_shown(given)}")
    if isinstance(given, int) and wanted is int and given not in _INT32:
        raise _WrongTypeError(f"expected a number of 32 bits, got {given}")
    return given


def _list(item: Any, given: object, path: str, problems: list[Problem]) -> tuple[Any, ...]:
    if not isinstance(given, list):
        raise _WrongTypeError(f"expected a list, got {_shown(given)}")
    return tuple(_scalars(item, ((f"{path}[{index}]", each) for index, each in enumerate(given)), problems))


def _gates(given: object, path: str, problems: list[Problem]) -> dict[str, bool]:
    if not isinstance(given, dict):
        raise _WrongTypeError(f"expected names with true or false, got {_shown(given)}")
    return {
        name: bool(each)
        for name, value in given.items()
        for each in _scalars(bool, [(f"{path}.{name}", value)], problems)
    }


def _scalars(wanted: type, given: Iterable[tuple[str, object]], problems: list[Problem]) -> Iterator[Any]:
    """Yields the values of the type, given with their paths; the others are problems."""
    for path, value in given:
        try:
            yield _scalar(wanted, value)
        except _WrongTypeError as wrong:
            problems.append(Problem(path, str(wrong)))


def _duration(given: object) -> float:
    if not isinstance(given, str):
        raise _WrongTypeError(f"expected a duration such as 30s or 1h30m, got {_shown(given)}")
    try:
        return parse_duration(given)
    except ValueError as error:
        raise _WrongTypeError(f"{error}; expected a duration such as 30s or 1h30m") from error


def _default(each: Field[Any]) -> object:
    return each.default if each.default is not MISSING else None


def _unknown(path: str, known: Mapping[str, object]) -> str:
    if path in _REMOVED:
        return f"is ignored, {_REMOVED[path]}"
    lower = {each.lower(): each for each in known}
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
        return {name: _written(getattr(value, field.name), field.name) for name, field in _names(type(value)).items()}
    if isinstance(value, tuple):
        return [_written(item) for item in value]
    if name.endswith("_s"):
        return format_duration(value)
    return dict(value) if isinstance(value, Mapping) else value
