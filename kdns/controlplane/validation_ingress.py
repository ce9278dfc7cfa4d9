"""The rules of Ingresses and IngressClasses (kube-apiserver: pkg/apis/networking/validation)."""

from __future__ import annotations

import re

from kdns.controlplane import formats
from kdns.controlplane.causes import each, invalid_value, required, unsupported
from kdns.controlplane.kinds import Json
from kdns.controlplane.status import Cause
from kdns.controlplane.validation import IMMUTABLE, validate_meta, validate_meta_update

_CLASS = "kubernetes.io/ingress.class"
_PATH_TYPES = ("Exact", "ImplementationSpecific", "Prefix")
_NOT_WITHIN = ("//", "/./", "/../", "%2f", "%2F")
_NOT_AT_END = ("/..", "/.")
_CONTROLLER = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/[^/].*")


def validate_ingress(obj: Json, old: Json | None = None) -> list[Cause]:
    """Every broken rule of an Ingress."""
    causes = validate_meta_update(old, obj) if old else []
    causes += validate_meta(obj, formats.dns_subdomain)
    spec = obj.get("spec") or {}
    if not spec.get("rules") and not spec.get("defaultBackend"):
        detail = "either `defaultBackend` or `rules` must be specified"
        causes.append(invalid_value("spec", spec.get("rules"), detail))
    if spec.get("defaultBackend") is not None:
        causes += _backend("spec.defaultBackend", spec["defaultBackend"])
    for index, rule in enumerate(spec.get("rules") or []):
        causes += _host(f"spec.rules[{index}].host", rule.get("host") or "")
        if rule.get("http") is not None:
            causes += _paths("spec.rules[0].http", rule["http"])
    for row in spec.get("tls") or []:
        for index, host in enumerate(row.get("hosts") or []):
            causes += each(f"spec.tls[{index}].hosts", host, _host_name(host))
    if name := spec.get("ingressClassName"):
        causes += each("spec.ingressClassName", name, formats.dns_subdomain(name))
    chosen = (obj["metadata"].get("annotations") or {}).get(_CLASS)
    if not old and chosen and name and chosen != name:
        detail = "must match `ingressClassName` when both are specified"
        causes.append(invalid_value(f"metadata.annotations[{_CLASS}]", chosen, detail))
    return causes


def _host(path: str, host: str) -> list[Cause]:
    if not host:
        return []
    number = formats.parse_ip(host)
    causes = [invalid_value(path, host, "must be a DNS name, not an IP address")] if number else []
    return causes + each(path, host, _host_name(host))


def _host_name(host: str) -> list[str]:
    return formats.wildcard_subdomain(host) if "*" in host else formats.dns_subdomain(host)


def _paths(path: str, http: Json) -> list[Cause]:
    """The paths of a rule. kube-apiserver names the first rule for faults in any of them; so does this."""
    if not http.get("paths"):
        return [required(f"{path}.paths")]
    rows = enumerate(http["paths"])
    return [cause for index, row in rows for cause in _path(f"{path}.paths[{index}]", row)]


def _path(at: str, row: Json) -> list[Cause]:
    kind, text, causes = row.get("pathType"), row.get("path") or "", []
    match kind:
        case None:
            return [required(f"{at}.pathType", "pathType must be specified")]
        case "Exact" | "Prefix":
            wrong = [] if text.startswith("/") else ["must be an absolute path"]
            wrong += [f"must not contain '{part}'" for part in _NOT_WITHIN if part in text]
            wrong += [f"cannot end with '{part}'" for part in _NOT_AT_END if text.endswith(part)]
            causes += each(f"{at}.path", text, wrong)
        case "ImplementationSpecific":
            if text and not text.startswith("/"):
                causes.append(invalid_value(f"{at}.path", text, "must be an absolute path"))
        case _:
            causes.append(unsupported(f"{at}.pathType", kind, _PATH_TYPES))
    return causes + _backend(f"{at}.backend", row.get("backend") or {})


def _backend(path: str, backend: Json) -> list[Cause]:
    service, resource = backend.get("service"), backend.get("resource")
    if service is not None and resource is not None:
        return [invalid_value(path, "", "cannot set both resource and service backends")]
    if resource is not None:
        return [required(f"{path}.resource.{field}") for field in ("kind", "name") if not resource.get(field)]
    if service is None:
        return [invalid_value(path, "", "resource or service backend is required")]
    name, port = service.get("name") or "", service.get("port") or {}
    where = f"{path}.service.name"
    causes = each(where, name, formats.dns_label_1035(name)) if name else [required(where)]
    if port.get("name") and port.get("number"):
        return [*causes, invalid_value(path, "", "cannot set both port name & port number")]
    if port.get("name"):
        return causes + each(f"{path}.service.port.name", port["name"], formats.port_name(port["name"]))
    if port.get("number"):
        return causes + each(f"{path}.service.port.number", port["number"], formats.port_number(port["number"]))
    return [*causes, required(path, "port name or number is required")]


def validate_ingress_class(obj: Json, old: Json | None = None) -> list[Cause]:
    """The controller has a domain prefix and is for life; parameters name an object."""
    causes = validate_meta_update(old, obj) if old else []
    causes += validate_meta(obj, formats.dns_subdomain, namespaced=False)
    spec = obj.get("spec") or {}
    controller = spec.get("controller") or ""
    if old and controller != ((old.get("spec") or {}).get("controller") or ""):
        causes.append(invalid_value("spec.controller", controller, IMMUTABLE))
    if not controller:
        causes.append(required("spec.controller"))
    elif not _CONTROLLER.fullmatch(controller):
        detail = 'must be a domain-prefixed path (such as "acme.io/foo")'
        causes.append(invalid_value("spec.controller", controller, detail))
    return causes + _parameters(spec.get("parameters"))


def _parameters(parameters: Json | None) -> list[Cause]:
    if parameters is None:
        return []
    path = "spec.parameters"
    causes = [required(f"{path}.{field}") for field in ("kind", "name") if not parameters.get(field)]
    match parameters.get("scope"), parameters.get("namespace"):
        case "Namespace", None | "":
            causes.append(required(f"{path}.namespace", '`parameters.scope` is set to "Namespace"'))
        case "Namespace", str(namespace):
            causes += each(f"{path}.namespace", namespace, formats.dns_label(namespace))
        case "Cluster", str(namespace) if namespace:
            detail = '`parameters.scope` is set to "Cluster"'
            causes.append(Cause(f"{path}.namespace", "Forbidden", detail))
        case "Cluster", _:
            pass
        case scope, _:
            causes.append(unsupported(f"{path}.scope", scope, ("Cluster", "Namespace")))
    return causes
