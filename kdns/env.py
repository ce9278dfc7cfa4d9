"""Service variables: the environment variables that lead a container to the Services of its namespace.

Names, order and selection are the kubelet's (pkg/kubelet/envvars, getServiceEnvVarMap). Each Service with a cluster IP
gives `{NAME}_SERVICE_HOST` and `_PORT` and, as Docker's links did, `{NAME}_PORT` and four variables per port.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping

from kdns.cluster.objects import Service
from kdns.errors import InputError, KdnsError
from kdns.net import join_host_port

__all__ = [
    "FORMATS",
    "MASTER_SERVICE",
    "EnvError",
    "FormatError",
    "as_cri",
    "as_docker",
    "as_fish",
    "as_json",
    "as_powershell",
    "as_sh",
    "as_yaml",
    "environment_bytes",
    "pod_service_variables",
    "select_services",
    "service_variables",
    "size_warning",
    "variable_name",
    "variables_of",
]

MASTER_SERVICE = ("default", "kubernetes")
"""The Service whose variables every container has, with service links or without."""

ENVIRONMENT_BYTES = 2 * 1024 * 1024
"""Linux's limit for arguments and environment together: a quarter of the usual 8 MiB stack limit (execve(2))."""

MANY_BYTES = ENVIRONMENT_BYTES // 2
MANY_VARIABLES = 5_000
POINTER_BYTES = 8

_SH_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_WORD = re.compile(r"[A-Za-z0-9_]+")
_POWERSHELL_QUOTE = re.compile("['\u2018\u2019\u201a\u201b]")
"""Each of them ends a string in single quotes, and stands for itself if it is doubled (about_Quoting_Rules)."""
_NOT_IN_YAML = re.compile("[\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]")
"""Characters that JSON does not escape, and YAML 1.2 does not have in a line (§5.1)."""


class EnvError(KdnsError):
    """Variables that are not known yet, or cannot be determined."""


class FormatError(InputError):
    """A variable that the chosen format cannot represent."""


def service_variables(
    services: Iterable[Service], namespace: str, *, enable_service_links: bool = True
) -> dict[str, str]:
    """Returns the variables of a container in `namespace`, in the kubelet's order for `services` in the given order.

    Without links only default/kubernetes has variables. With links the namespace's own `kubernetes` replaces it.
    If two ports or Services give the same name, the value of the last one is at the position of the first.
    """
    chosen = select_services(services, namespace, enable_service_links=enable_service_links)
    return {name: value for service in chosen for name, value in variables_of(service)}


def pod_service_variables(
    services: Iterable[Service] | None,
    namespace: str,
    *,
    enable_service_links: bool | None,
    services_synced: bool,
    static_pod: bool = False,
) -> dict[str, str]:
    """Returns the variables of a Pod as a kubelet computes them: `service_variables`. Raises EnvError while they are
    unknown.

    `services` is None on a node without an API server: its Pods have no service variables. `enable_service_links` is
    spec.enableServiceLinks; the API server defaults it to true, so None is an error. A static Pod does not wait for the
    first list of Services, since the API server may be such a Pod.
    """
    if enable_service_links is None:
        raise EnvError("spec.enableServiceLinks is not set: the API server defaults it to true; set true or false")
    if not services_synced and not static_pod:
        raise EnvError("the Services have not been listed yet: try again when they are, or the pod would miss some")
    return service_variables(services or (), namespace, enable_service_links=enable_service_links)


def select_services(
    services: Iterable[Service], namespace: str, *, enable_service_links: bool = True
) -> tuple[Service, ...]:
    """Returns the Services that have variables in a container of `namespace`, at most one per name."""
    chosen: dict[str, Service] = {}
    for service in services:
        service_namespace, name = service.key
        if not has_cluster_ip(service):
            continue
        if service.key == MASTER_SERVICE:
            chosen.setdefault(name, service)
        elif service_namespace == namespace and enable_service_links:
            chosen[name] = service
    return tuple(chosen.values())


def has_cluster_ip(service: Service) -> bool:
    """Returns whether a Service has variables: not a headless, ExternalName or unallocated one."""
    return service.spec.cluster_ip not in ("", "None")


def variables_of(service: Service) -> Iterator[tuple[str, str]]:
    """Yields the variables of one Service, in order; none without a cluster IP. Addresses are spelled as in the API."""
    if not has_cluster_ip(service):
        return
    host = service.spec.cluster_ip
    prefix = variable_name(service.metadata.name)
    yield f"{prefix}_SERVICE_HOST", host
    if not service.ports:
        return
    first = service.ports[0]
    yield f"{prefix}_SERVICE_PORT", str(first.port)
    for port in service.ports:
        if port.name:
            yield f"{prefix}_SERVICE_PORT_{variable_name(port.name)}", str(port.port)
    yield f"{prefix}_PORT", url(host, first.protocol, first.port)
    for port in service.ports:
        link = f"{prefix}_PORT_{port.port}_{(port.protocol or 'TCP').upper()}"
        yield link, url(host, port.protocol, port.port)
        yield f"{link}_PROTO", (port.protocol or "TCP").lower()
        yield f"{link}_PORT", str(port.port)
        yield f"{link}_ADDR", host


def variable_name(name: str) -> str:
    """Returns `REDIS_MASTER` for `redis-master`: upper case, dashes to underscores."""
    return name.upper().replace("-", "_")


def is_shell_name(name: str) -> bool:
    return bool(_SH_NAME.fullmatch(name))


def url(host: str, protocol: str, port: int) -> str:
    """Returns a URL such as `tcp://10.0.0.11:6379`, with an IPv6 address in brackets."""
    return f"{(protocol or 'TCP').lower()}://{join_host_port(host, port)}"


def as_sh(variables: Mapping[str, str]) -> str:
    """Returns lines for `eval` or `.` in any POSIX shell.

    A Service name may start with a digit, the name of a shell variable may not: such a variable becomes a comment.
    """
    return "".join(
        f"export {name}={shlex.quote(value)}\n"
        if is_shell_name(name)
        else f"# no shell variable: {_one_line(name)}={shlex.quote(_one_line(value))}\n"
        for name, value in variables.items()
    )


def as_docker(variables: Mapping[str, str]) -> str:
    """Returns lines for `docker run --env-file`, which has no quotes.

    Raises FormatError for a variable that would change.
    """
    for name, value in variables.items():
        if not name or name.startswith("#") or re.search(r"[=\s\0]", name):
            raise FormatError(f"{name!r} cannot be a name in an env-file: no spaces, no =, no # in front")
        if re.search(r"[\r\n\0]", value):
            raise FormatError(f"the value of {name} has several lines, an env-file has one line per variable")
    return "".join(f"{name}={value}\n" for name, value in variables.items())


def as_json(variables: Mapping[str, str]) -> str:
    """Returns one JSON object, in order."""
    return json.dumps(dict(variables), indent=2) + "\n"


def as_cri(variables: Mapping[str, str]) -> str:
    """Returns a JSON object with the field `envs` of a ContainerConfig of the Container Runtime Interface, in order.

    crictl reads it from the file of `crictl create`.
    """
    return json.dumps({"envs": [{"key": name, "value": value} for name, value in variables.items()]}, indent=2) + "\n"


def as_yaml(variables: Mapping[str, str]) -> str:
    """Returns the field `env:` of a container in YAML, in order.

    Each `$` is doubled, because Kubernetes replaces `$(NAME)` in a value.
    """
    entries = (
        f"- name: {_yaml(name)}\n  value: {_yaml(value.replace('$', '$$'))}\n" for name, value in variables.items()
    )
    return f"env:\n{''.join(entries)}" if variables else "env: []\n"


def as_fish(variables: Mapping[str, str]) -> str:
    """Returns lines for `source` in fish. Raises FormatError for a name that fish does not take."""
    _check_words(variables, "fish")
    quoted = {name: value.replace("\\", "\\\\").replace("'", "\\'") for name, value in variables.items()}
    return "".join(f"set -gx {name} '{value}'\n" for name, value in quoted.items())


def as_powershell(variables: Mapping[str, str]) -> str:
    """Returns lines for Invoke-Expression in PowerShell. Raises FormatError for a name with other than letters, digits
    and underscores.
    """
    _check_words(variables, "PowerShell")
    quoted = {name: _POWERSHELL_QUOTE.sub(r"\g<0>\g<0>", value) for name, value in variables.items()}
    return "".join(f"${{env:{name}}} = '{value}'\n" for name, value in quoted.items())


FORMATS = {
    "sh": as_sh,
    "docker": as_docker,
    "json": as_json,
    "cri": as_cri,
    "yaml": as_yaml,
    "fish": as_fish,
    "powershell": as_powershell,
}
"""The formats of `kdns env --output`."""


def environment_bytes(variables: Mapping[str, str]) -> int:
    """Returns the bytes that execve(2) counts: `name=value`, its terminating NUL and the pointer to it."""
    return sum(len(name.encode()) + len(value.encode()) + 2 + POINTER_BYTES for name, value in variables.items())


def size_warning(variables: Mapping[str, str]) -> str:
    """Returns a warning if a container may fail to start because of its environment's size (E2BIG), else ""."""
    size_bytes = environment_bytes(variables)
    if len(variables) <= MANY_VARIABLES and size_bytes <= MANY_BYTES:
        return ""
    return (
        f"{len(variables)} variables take {size_bytes // 1024} KiB of the {ENVIRONMENT_BYTES // 1024} KiB "
        "that Linux gives arguments and environment together; programs may fail to start (E2BIG). "
        "Set enableServiceLinks: false in the pod and use DNS names, or split the namespace"
    )


def _check_words(names: Iterable[str], shell: str) -> None:
    for name in names:
        if not _WORD.fullmatch(name):
            raise FormatError(f"{name!r} cannot be a variable in {shell}: expected letters, digits and underscores")


def _yaml(text: str) -> str:
    """Returns a scalar in double quotes."""
    return _NOT_IN_YAML.sub(lambda found: f"\\u{ord(found[0]):04x}", json.dumps(text, ensure_ascii=False))


def _one_line(text: str) -> str:
    return text.replace("\r", " ").replace("\n", " ")
