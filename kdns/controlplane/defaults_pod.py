"""The defaults of a Pod that people see with `kubectl get -o yaml` (core/v1 defaults.go), and its QoS class."""

from __future__ import annotations

from kdns.controlplane.kinds import Json

_SPEC: Json = {
    "restartPolicy": "Always",
    "dnsPolicy": "ClusterFirst",
    "terminationGracePeriodSeconds": 30,
    "schedulerName": "default-scheduler",
    "enableServiceLinks": True,
}
_PROBE: Json = {"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3}
_FILE_MODE = 0o644


def default_pod(obj: Json) -> Json:
    """A copy of the Pod with its defaults."""
    return {**default_template(obj), **_addresses(obj.get("status") or {})}


def admitted(pod: Json) -> Json:
    """A new Pod with what admission adds: account, priority, five minutes on nodes that fail."""
    given = pod["spec"]
    account = given.get("serviceAccountName") or given.get("serviceAccount") or "default"
    tolerations = given.get("tolerations") or []
    known = {(each.get("key") or "", each.get("effect") or "") for each in tolerations}
    failing = [
        {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
        for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
        if not known & {(key, "NoExecute"), (key, ""), ("", "NoExecute"), ("", "")}
    ]
    spec = {
        "priority": 0,
        "preemptionPolicy": "PreemptLowerPriority",
        **given,
        "serviceAccountName": account,
        "serviceAccount": account,
        "tolerations": [*tolerations, *failing],
    }
    return {**pod, "spec": spec}


def default_template(obj: Json) -> Json:
    """A copy of what Pods are made from, with the defaults of their spec."""
    given = {key: value for key, value in (obj.get("spec") or {}).items() if value is not None}
    spec = {**_SPEC, "securityContext": {}, **given}
    for field in ("initContainers", "containers"):
        if field in spec:
            spec[field] = [_container(each, host=bool(spec.get("hostNetwork"))) for each in spec[field]]
    if "volumes" in spec:
        spec["volumes"] = [_volume(volume) for volume in spec["volumes"]]
    return {**obj, "spec": spec}


def _addresses(status: Json) -> Json:
    """podIP and podIPs in step: podIP is what clients of old set, so it wins."""
    first, listed = status.get("podIP"), status.get("podIPs") or []
    if first and [row.get("ip") for row in listed[:1]] != [first]:
        return {"status": {**status, "podIPs": [{"ip": first}]}}
    return {"status": {**status, "podIP": listed[0].get("ip", "")}} if listed and not first else {}


def _container(given: Json, *, host: bool) -> Json:
    image = given.get("image") or ""
    _, _, last = image.rpartition("/")
    tag = last.partition(":")[2] if "@" not in last else "by digest"
    container = {
        "imagePullPolicy": "Always" if tag in {"", "latest"} else "IfNotPresent",
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        **{key: value for key, value in given.items() if value is not None},
        "resources": _resources(given.get("resources") or {}),
    }
    if container.get("ports"):
        container["ports"] = [_port(port, host=host) for port in container["ports"]]
    for probe in ("livenessProbe", "readinessProbe", "startupProbe"):
        if probe in container:
            container[probe] = _probe(container[probe])
    if container.get("env"):
        container["env"] = [_variable(variable) for variable in container["env"]]
    return container


def _port(port: Json, *, host: bool) -> Json:
    filled = {"protocol": "TCP", **port}
    if host and port.get("containerPort"):
        filled.setdefault("hostPort", port["containerPort"])
    return filled


def _probe(probe: Json) -> Json:
    filled = {**_PROBE, **probe}
    if filled.get("httpGet"):
        filled["httpGet"] = {"path": "/", "scheme": "HTTP", **filled["httpGet"]}
    if filled.get("grpc"):
        filled["grpc"] = {"service": "", **filled["grpc"]}
    return filled


def _variable(variable: Json) -> Json:
    source = variable.get("valueFrom") or {}
    if not source.get("fieldRef"):
        return variable
    return {**variable, "valueFrom": {**source, "fieldRef": {"apiVersion": "v1", **source["fieldRef"]}}}


def _resources(resources: Json) -> Json:
    """Requests that are missing are the limits."""
    limits = resources.get("limits") or {}
    return {**resources, "requests": {**limits, **(resources.get("requests") or {})}} if limits else resources


def _volume(volume: Json) -> Json:
    if not [key for key in volume if key != "name"]:
        return {**volume, "emptyDir": {}}
    filled = dict(volume)
    for source in ("secret", "configMap", "downwardAPI", "projected"):
        if filled.get(source) is not None:
            filled[source] = {"defaultMode": _FILE_MODE, **filled[source]}
    if filled.get("hostPath") is not None:
        filled["hostPath"] = {"type": "", **filled["hostPath"]}
    return filled


def qos_class(pod: Json) -> str:
    """Guaranteed: every container's cpu and memory are limited and requested alike; BestEffort: none says anything."""
    spec = pod.get("spec") or {}
    containers = [*(spec.get("initContainers") or []), *(spec.get("containers") or [])]
    wants = [(c.get("resources") or {}) for c in containers]
    pairs = [(want.get("requests") or {}, want.get("limits") or {}) for want in wants]
    named = ("cpu", "memory")
    if not any(requests.get(name) or limits.get(name) for requests, limits in pairs for name in named):
        return "BestEffort"
    alike = all(limits.get(name) and requests.get(name) == limits[name] for requests, limits in pairs for name in named)
    return "Guaranteed" if alike else "Burstable"
