"""A newcomer's tour with kubectl: what each command shows, also where nothing runs that it could reach."""

from collections.abc import Iterator

import pytest
from kdns_process import ROOT, Running, kdns_up

NO_CONTAINER = "Pods are simulated, no container runs"
WORKS: list[tuple[str, list[str]]] = [
    ("get nodes -o wide", ["kdns", "Ready", "10.244.0.1"]),
    ("get namespaces", ["default", "kube-node-lease", "kube-public", "kube-system"]),
    ("get all -A", ["service/kubernetes", "service/kube-dns"]),
    ("get --raw /readyz?verbose", ["[+]ping ok", "readyz check passed"]),
    ("cluster-info", ["control plane is running at", "CoreDNS is running at"]),
    ("version", ["Server Version: v1.36."]),
    ("api-versions", ["apps/v1", "discovery.k8s.io/v1"]),
    ("api-resources", ["endpointslices", "services", "svc", "deployments"]),
    ("explain service.spec.type", ["FIELD: type <string>", "ExternalName"]),
    (
        "explain service.spec.ports",
        ["FIELD: ports <[]ServicePort>", "enum: SCTP, TCP, UDP", "port <integer> -required-"],
    ),
    ("explain deployments --recursive", ["KIND: Deployment", "ownerReferences <[]OwnerReference>"]),
    ("explain crd --recursive", ["KIND: CustomResourceDefinition", "openAPIV3Schema <JSONSchemaProps>"]),
    ("run web --image=nginx --port=80", ["pod/web created"]),
    ("wait pod/web --for=condition=Ready --timeout=60s", ["condition met"]),
    ("expose pod web --type=NodePort", ["service/web exposed"]),
    ("get pods -o wide", ["1/1", "Running", "10.244.", "kdns"]),
    ("get svc,ep,endpointslices -o wide", ["NodePort", "endpoints/web", "run=web", "10.244."]),
    ("describe pod web", ["Status: Running", "IP: 10.244.", "Ready True"]),
    ("describe svc web", ["NodePort: <unset> 3", "Endpoints: 10.244."]),
    ("describe endpoints web", ["Addresses: 10.244.", "<unset> 80 TCP"]),
    ("describe endpointslices -l kubernetes.io/service-name=web", ["TargetRef: Pod/web", "Ready: true"]),
    ("describe node kdns", ["default web", "PodCIDR:", "Ready True"]),
    ("describe namespace default", ["Status: Active"]),
    ("create deployment front --image=nginx --replicas=2 --port=80", ["deployment.apps/front created"]),
    ("rollout status deployment/front --timeout=60s", ["successfully rolled out"]),
    ("get deploy,rs,pods", ["deployment.apps/front", "2/2", "replicaset.apps/front-", "pod/front-"]),
    ("expose deployment front", ["service/front exposed"]),
    ("scale deployment front --replicas=3", ["deployment.apps/front scaled"]),
    ("rollout status deployment/front --timeout=60s", ["successfully rolled out"]),
    ("describe deployment front", ["Replicas: 3 desired | 3 updated | 3 total", "ScalingReplicaSet"]),
    ("get events", ["ScalingReplicaSet", "SuccessfulCreate"]),
    ("set image deployment/front nginx=nginx:2", ["deployment.apps/front image updated"]),
    ("rollout status deployment/front --timeout=60s", ["successfully rolled out"]),
    ("rollout history deployment/front", ["REVISION CHANGE-CAUSE 1 <none> 2 <none>"]),
    ("rollout undo deployment/front", ["deployment.apps/front rolled back"]),
    ("rollout history deployment/front", ["REVISION CHANGE-CAUSE 2 <none> 3 <none>"]),
    ("rollout history deployment/front --revision=2", ["nginx:2"]),
    ("get deployment front -o wide", [" nginx app=front"]),
    ("rollout restart deployment/front", ["deployment.apps/front restarted"]),
    ("rollout pause deployment/front", ["deployment.apps/front paused"]),
    ("rollout resume deployment/front", ["deployment.apps/front resumed"]),
    ("rollout status deployment/front --timeout=60s", ["successfully rolled out"]),
    *(
        row
        for workload in ("statefulset/web", "daemonset/agent")
        for row in (
            (f"set image {workload} nginx=other:2", ["image updated"]),
            (f"rollout status {workload} --timeout=60s", [" roll"]),
            (f"get {workload} -o wide", ["other:2"]),
            (f"rollout undo {workload}", ["rolled back"]),
            (f"get {workload} -o wide", ["nginx:1.27"]),
            (f"rollout history {workload}", ["REVISION CHANGE-CAUSE 2 <none> 3 <none>"]),
        )
    ),
    ("create cronjob often --image=busybox --schedule=@hourly", ["cronjob.batch/often created"]),
    ("create job once --from=cronjob/often", ["job.batch/once created"]),
    ("wait --for=condition=complete job/once --timeout=60s", ["condition met"]),
    ("get jobs,pods", ["job.batch/once Complete 1/1", "Completed"]),
    ("create pdb front --selector=app=front --min-available=4", ["but nothing in this control plane acts on it"]),
    ("get pdb front", ["front 4 <none> 0"]),
    ("drain kdns --ignore-daemonsets --force", ["evicting pod default/front-", "node/kdns drained"]),
    ("get nodes", ["Ready,SchedulingDisabled"]),
    ("get pods -l app=front", ["Pending"]),
    ("uncordon kdns", ["node/kdns uncordoned"]),
    ("wait pods --for=condition=Ready -l app=front --timeout=60s", ["condition met"]),
    ("auth can-i create services", ["yes"]),
    ("auth can-i --list", ["*.*", "[*]"]),
    ("auth whoami", ["kubernetes-admin", "system:masters"]),
    ("delete deployment,service front", ['deployment.apps "front" deleted', 'service "front" deleted']),
    ("delete job once", ['job.batch "once" deleted']),
    ("delete service web --now", ['service "web" deleted']),
    ("delete service --all", ['service "kubernetes" deleted']),
    ("delete endpoints kubernetes", ['endpoints "kubernetes" deleted']),
    ("get service,endpoints,endpointslices kubernetes", ["10.96.0.1", "endpoints/kubernetes 127.0.0.1:", "IPv4"]),
]
"""(a command, parts of what it shows with one space between words), in order."""

CANNOT: list[tuple[str, str]] = [
    ("logs seen", f'pod "seen" has no log: {NO_CONTAINER}'),
    (
        "create token default",
        'serviceaccount "default": TokenRequest is not supported; authenticate with --token-file or --client-ca-file',
    ),
    ("exec seen -- ls", f'pod "seen" cannot execute commands: {NO_CONTAINER}'),
    ("attach seen", f'pod "seen" cannot be attached to: {NO_CONTAINER}'),
    ("port-forward pod/seen :80", f'pod "seen" has no ports to forward to: {NO_CONTAINER}'),
    ("debug seen -i --image=busybox --profile=general", "ephemeral containers are disabled for this cluster"),
    ("logs nobody", 'pods "nobody" not found'),
    (
        "get --raw /api/v1/namespaces/kube-system/services/kube-dns:dns/proxy/",
        f'service "kube-dns" cannot be connected to: {NO_CONTAINER}',
    ),
    ("get --raw /api/v1/nodes/kdns/proxy/metrics", f'node "kdns" cannot be connected to: {NO_CONTAINER}'),
    ("top pods", "Metrics API not available"),
    ("get gadgets", 'the server doesn\'t have a resource type "gadgets"'),
    ("get svc nobody", 'Error from server (NotFound): services "nobody" not found'),
    ("scale deployment/kept --replicas=5 --current-replicas=9", "Expected replicas to be 9, was 1"),
    ("scale deployment/kept --replicas=5 --resource-version=1", "Expected resource version to be 1"),
    ("create service nodeport a", "at least one tcp port specifier must be provided"),
    ("create service nodeport a --tcp=80 --node-port=1", "provided port is not in the valid range"),
]
"""(a command that fails, a part of what it says)."""


AGENT = """
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent}
spec:
  selector: {matchLabels: {app: agent}}
  template:
    metadata: {labels: {app: agent}}
    spec: {containers: [{name: nginx, image: "nginx:1.27"}]}
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A `kdns up` with the workloads of docs/up.md for the whole tour; its log must hold no error."""
    section = (ROOT / "docs" / "up.md").read_text("utf-8").partition("## Workloads\n")[2]
    manifest = section.partition("```yaml\n")[2].partition("```")[0]
    with kdns_up(tmp_path_factory.mktemp("tour")) as running:
        running.kubectl("apply", "-f", "-", stdin=f"{manifest}---\n{AGENT}")
        yield running
    assert not [line for line in running.lines if "Traceback" in line or "request failed" in line]


def test_the_tour(cluster: Running) -> None:
    for command, parts in WORKS:
        out = cluster.kubectl(*command.split(" "))
        shown = " ".join(out.split())
        assert all(part in shown for part in parts), f"kubectl {command}\n{out}wanted {parts}"


def test_what_cannot_be_done_is_said(cluster: Running) -> None:
    cluster.kubectl("run", "seen", "--image=nginx", "--port=80")
    cluster.kubectl("create", "deployment", "kept", "--image=nginx")
    cluster.kubectl("wait", "pod/seen", "--for=condition=Ready", "--timeout=60s")
    for command, says in CANNOT:
        out = cluster.kubectl(*command.split(" "), check=False)
        assert says in out, f"kubectl {command}\n{out}wanted {says}"
