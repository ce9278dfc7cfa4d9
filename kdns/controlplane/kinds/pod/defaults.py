"""The defaults of Pods (core/v1 defaults.go), what admission adds, the first status and the QoS class."""

from __future__ import annotations

from kdns.controlplane.apimachinery.kinds import Json
from kdns.controlplane.kinds.defaults import below, filler
from kdns.controlplane.storage.object_meta import with_metadata_of

_HTTP: Json = {"httpGet.path": "/", "httpGet.scheme": "HTTP"}
_PROBE: Json = {
    "timeoutSeconds": 1,
    "periodSeconds": 10,
    "successThreshold": 1,
    "failureThreshold": 3,
    "grpc.service": "",
    **_HTTP,
}
_CONTAINER: Json = {
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
    "resources": {},
    "ports.protocol": "TCP",
    "env.valueFrom.fieldRef.apiVersion": "v1",
    **below("lifecycle.postStart", _HTTP),
    **below("lifecycle.preStop", _HTTP),
    **below("livenessProbe", _PROBE),
    **below("readinessProbe", _PROBE),
    **below("startupProbe", _PROBE),
}
_FILE_MODE = 0o644
_VOLUME: Json = {
    "secret.defaultMode": _FILE_MODE,
    "configMap.defaultMode": _FILE_MODE,
    "downwardAPI.defaultMode": _FILE_MODE,
    "downwardAPI.items.fieldRef.apiVersion": "v1",
    "projected.defaultMode": _FILE_MODE,
    "projected.sources.downwardAPI.items.fieldRef.apiVersion": "v1",
    "projected.sources.serviceAccountToken.expirationSeconds": 3600,
    "hostPath.type": "",
    "ephemeral.volumeClaimTemplate.spec.volumeMode": "Filesystem",
}
_fill = filler(
    {
        "restartPolicy": "Always",
        "dnsPolicy": "ClusterFirst",
        "terminationGracePeriodSeconds": 30,
        "schedulerName": "default-scheduler",
        "securityContext": {},
        **below("initContainers", _CONTAINER),
        **below("containers", _CONTAINER),
        **below("volumes", _VOLUME),
    }
)

_RUN = ("initContainers", "containers")


def default_pod(obj: Json) -> Json:
    """Adds to the defaults of templates: host ports, requests and service links."""
    pod = default_pod_template(obj)
    spec = {"enableServiceLinks": True, **pod["spec"]}
    for field in _RUN:
        if field in spec:
            host = bool(spec.get("hostNetwork"))
            spec[field] = [_container_defaults(container, host=host) for container in spec[field]]
    return {**pod, "spec": spec, **_addresses(obj.get("status") or {})}


def admitted(pod: Json, old: Json | None) -> Json:
    """A Pod after admission: priority, tolerations of failed nodes, and a new Pod's service account.

    Differs: no volume with a token is mounted, since no container runs.
    """
    sent = pod["spec"]
    tolerations = sent.get("tolerations") or []
    known = {(toleration.get("key") or "", toleration.get("effect") or "") for toleration in tolerations}
    failing = [
        {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
        for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
        if not known & {(key, "NoExecute"), (key, ""), ("", "NoExecute"), ("", "")}
    ]
    priority = {"priority": 0, "preemptionPolicy": "PreemptLowerPriority"}
    if old:
        priority = {field: value for field in priority if (value := old["spec"].get(field)) is not None}
    spec = {**priority, **sent, "tolerations": [*tolerations, *failing]}
    if not old:
        account = sent.get("serviceAccountName") or sent.get("serviceAccount") or "default"
        spec = _with_account({**spec, "serviceAccountName": account})
    return {**pod, "spec": spec}


def _with_account(spec: Json) -> Json:
    """Sets both names of the service account; serviceAccountName wins."""
    account = spec.get("serviceAccountName") or spec.get("serviceAccount")
    return {**spec, "serviceAccountName": account, "serviceAccount": account} if account else spec


def counted_pod(pod: Json) -> Json:
    """metadata.generation counts changes of the spec, except nodeName."""
    return {field: value for field, value in (pod.get("spec") or {}).items() if field != "nodeName"}


def default_pod_template(obj: Json) -> Json:
    """The defaults that the specs of Pods and templates share.

    Differs: volumes of Ceph, iSCSI, Azure and ScaleIO, and ephemeral containers get none.
    """
    spec = _fill(_with_account(obj.get("spec") or {}))
    for container in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ())):
        container.setdefault("imagePullPolicy", _pull_policy(container.get("image") or ""))
    for volume in spec.get("volumes") or ():
        if volume.keys() <= {"name"}:
            volume["emptyDir"] = {}
        elif image := volume.get("image"):
            image.setdefault("pullPolicy", _pull_policy(image.get("reference") or ""))
    return {**obj, "spec": spec}


def _addresses(status: Json) -> Json:
    """Sets podIP and podIPs to the same; podIP wins, since old clients set only that."""
    first, listed = status.get("podIP"), status.get("podIPs") or []
    if first and [row.get("ip") for row in listed[:1]] != [first]:
        return {"status": {**status, "podIPs": [{"ip": first}]}}
    return {"status": {**status, "podIP": listed[0].get("ip", "")}} if listed and not first else {}


def _container_defaults(container: Json, *, host: bool) -> Json:
    ports, resources = container.get("ports") or (), container.get("resources") or {}
    if limits := resources.get("limits"):
        requests = {**limits, **(resources.get("requests") or {})}
        container = {**container, "resources": {**resources, "requests": requests}}
    if host and ports:
        numbered = [{**port, "hostPort": port.get("hostPort") or port.get("containerPort")} for port in ports]
        container = {**container, "ports": numbered}
    return container


def _pull_policy(image: str) -> str:
    _, _, last = image.rpartition("/")
    tag = last.partition(":")[2] if "@" not in last else "by digest"
    return "Always" if tag in {"", "latest"} else "IfNotPresent"


def qos_class(pod: Json) -> str:
    """Guaranteed: every container has equal limits and requests of cpu and memory. BestEffort: no container has any."""
    spec = pod.get("spec") or {}
    containers = [*(spec.get("initContainers") or []), *(spec.get("containers") or [])]
    wants = [(c.get("resources") or {}) for c in containers]
    pairs = [(want.get("requests") or {}, want.get("limits") or {}) for want in wants]
    named = ("cpu", "memory")
    if not any(requests.get(name) or limits.get(name) for requests, limits in pairs for name in named):
        return "BestEffort"
    alike = all(limits.get(name) and requests.get(name) == limits[name] for requests, limits in pairs for name in named)
    return "Guaranteed" if alike else "Burstable"


def first_pod_status(pod: Json) -> Json:
    """Pending, unless the manifest has a status.

    Differs: kube-apiserver drops that status. Without a kubelet, only the manifest can set it.
    """
    status = {key: value for key, value in (pod.get("status") or {}).items() if value}
    has_status = any(status.get(key) for key in ("phase", "podIP", "podIPs", "conditions"))
    return {"phase": "Pending", **(status if has_status else {}), "qosClass": qos_class(pod)}


def pod_with_status(new: Json, old: Json) -> Json:
    """An update of the status keeps the owners, and an omitted QoS class and observed generations."""
    status, before = new.get("status") or {}, old.get("status") or {}
    carried = {
        name: before[name] for name in ("qosClass", "observedGeneration") if name in before and not status.get(name)
    }
    if status.get("conditions"):
        carried["conditions"] = _with_generations(status["conditions"], before.get("conditions") or [])
    return with_metadata_of({**new, "status": status | carried}, old, ("ownerReferences",))


def _with_generations(conditions: list[Json], before: list[Json]) -> list[Json]:
    """A missing observedGeneration is that of the old condition of the same type; types may repeat."""
    observed: dict[str | None, list[int]] = {}
    for condition in before:
        observed.setdefault(condition.get("type"), []).append(condition.get("observedGeneration") or 0)
    rows = []
    for condition in conditions:
        generations = observed.get(condition.get("type"))
        generation = generations.pop(0) if generations else 0
        is_set = not generation or condition.get("observedGeneration")
        rows.append(condition if is_set else condition | {"observedGeneration": generation})
    return rows
