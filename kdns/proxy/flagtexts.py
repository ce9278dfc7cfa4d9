"""Every flag with its value as text, as Go's programs print their flags."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import Any, Final

from kdns.proxy.durations import written
from kdns.proxy.settings import HEALTHZ_PORT, METRICS_PORT, Settings
from kdns.proxy.settings_flags import FLAGS, Flag

_PORTS: Final = {"healthz-port": HEALTHZ_PORT, "metrics-port": METRICS_PORT}


def all_flags(given: Mapping[str, Any]) -> dict[str, str]:
    """All flags by name: those given, and the others with their defaults. A configuration file does not show here."""
    return {flag.name: _text(flag.kind, given.get(flag.name, _default(flag))) for flag in FLAGS}


def _default(flag: Flag) -> Any:
    path = flag.path
    if not path:
        return _PORTS.get(flag.name, False if flag.kind == "bool" else "")
    if path in {"sync_period", "min_sync_period"}:
        path = f"{'ipvs' if flag.name.startswith('ipvs-') else 'iptables'}.{path}_s"
    elif path == "masquerade_all":
        path = f"iptables.{path}"
    return reduce(getattr, path.split("."), Settings())


def _text(kind: str, value: Any) -> str:
    match kind:
        case "duration":
            return written(value)
        case "bool":
            return str(value).lower()
        case "float32":
            return f"{value:g}"
        case "stringSlice":
            return f"[{','.join(value)}]"
        case "mapStringBool":
            return ",".join(f"{name}={str(is_on).lower()}" for name, is_on in sorted(value.items()))
        case "pattern=N":
            return ",".join(f"{each.file_pattern}={each.verbosity}" for each in value)
        case _:
            return str(value)
