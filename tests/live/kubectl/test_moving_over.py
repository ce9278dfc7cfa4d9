"""CoreDNS's Deployment and Corefile, over to kdns and back with kubectl: what Pods are answered stays the same.

Pods of the control plane are simulated. Here each that is behind `kube-dns` gets a process, which serves the Corefile
of the ConfigMap that its Deployment mounts, with what a Pod's own network namespace would give it put in: ports, the
API, and the node's resolver.
"""

import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import yaml
from kdns_process import DEADLINE_S, ROOT, Running, kdns_up
from real_servers import resolver

COREFILE: str = yaml.safe_load((ROOT / "deploy" / "configmap.yaml").read_text())["data"]["Corefile"]
"""That of deploy/, which CoreDNS's ConfigMap has here too."""
BEFORE = """
apiVersion: v1
kind: ConfigMap
metadata: {name: coredns, namespace: kube-system}
data:
  Corefile: |
    COREFILE
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: coredns, namespace: kube-system, labels: {k8s-app: kube-dns}}
spec:
  replicas: 2
  selector: {matchLabels: {k8s-app: kube-dns, is: coredns}}
  template:
    metadata: {labels: {k8s-app: kube-dns, is: coredns}}
    spec:
      containers: [{name: coredns, image: coredns, args: [-conf, /etc/coredns/Corefile]}]
      volumes: [{name: config, configMap: {name: coredns}}]
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: default}
spec: {clusterIP: 10.96.0.50, ports: [{name: http, port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {name: outside, namespace: default}
spec: {type: ExternalName, externalName: www.outside.example}
""".replace("COREFILE", COREFILE.replace("\n", "\n    "))
OF_KUBE_DNS = "labelSelector=kubernetes.io/service-name%3Dkube-dns"
QUESTIONS = (
    ("web.default.svc.cluster.local", "A"),
    ("web.default.svc.cluster.local", "AAAA"),
    ("_http._tcp.web.default.svc.cluster.local", "SRV"),
    ("50.0.96.10.in-addr.arpa", "PTR"),
    ("10-1-2-3.default.pod.cluster.local", "A"),
    ("outside.default.svc.cluster.local", "A"),
    ("nothing.default.svc.cluster.local", "A"),
    ("www.outside.example", "A"),
    ("nothing.outside.example", "A"),
    ("www.outside.example.default.svc.cluster.local", "A"),
    ("7.2.0.192.in-addr.arpa", "PTR"),
)


@dataclass
class Pods:
    """A process for each Pod behind `kube-dns`, by the Pod's address."""

    cluster: Running
    upstream: str
    folder: Path
    processes: dict[str, tuple[subprocess.Popen[str], int]] = field(default_factory=dict)

    def sync(self, wanted: dict[str, int]) -> None:
        """Wait until so many Pods of each Deployment are behind the Service, and have exactly those run."""
        deadline_s = time.monotonic() + DEADLINE_S
        while True:
            slices = self.cluster.read(f"/apis/discovery.k8s.io/v1/namespaces/kube-system/endpointslices?{OF_KUBE_DNS}")
            behind = {
                endpoint["addresses"][0]: endpoint["targetRef"]["name"].split("-")[0]
                for each in slices["items"]
                for endpoint in each.get("endpoints") or ()
                if endpoint["conditions"]["ready"] and "targetRef" in endpoint
            }
            if {name: [*behind.values()].count(name) for name in wanted} == wanted and len(behind) == sum(
                wanted.values()
            ):
                break
            assert time.monotonic() < deadline_s, behind
            time.sleep(0.1)
        end([self.processes.pop(address)[0] for address in self.processes.keys() - behind.keys()])
        for address in behind.keys() - self.processes.keys():
            self.processes[address] = self._start(behind[address])

    def answers(self) -> list[set[tuple[str, str, tuple[str, ...]]]]:
        """What each Pod answers to each question: the rcode and the records without their TTLs."""
        return [self._answers(port) for _, port in self.processes.values()]

    def _answers(self, port: int) -> set[tuple[str, str, tuple[str, ...]]]:
        asked = [word for question in QUESTIONS for word in question]
        command = ["dig", "@127.0.0.1", "-p", str(port), "+noall", "+comments", "+answer", "+timeout=20", *asked]
        out = subprocess.run(command, capture_output=True, text=True, check=True, timeout=DEADLINE_S).stdout
        answers = re.split(r"^;; Got answer:$", out, flags=re.MULTILINE)[1:]
        found = set()
        for (name, qtype), answer in zip(QUESTIONS, answers, strict=True):
            (rcode,) = re.findall(r"status: (\w+)", answer)
            lines = [line.split(None, 4) for line in answer.splitlines() if line and not line.startswith(";")]
            found.add(
                (f"{name} {qtype}", rcode, tuple(sorted(f"{owner} {rest[2]} {rest[3]}" for owner, *rest in lines)))
            )
        return found

    def _start(self, deployment: str) -> tuple[subprocess.Popen[str], int]:
        config_map = self.cluster.read(f"/api/v1/namespaces/kube-system/configmaps/{deployment}")
        (api,) = self.cluster.wait_for(r"^api +(http://\S+)").groups()
        text = config_map["data"]["Corefile"]
        for word, own in (
            (r"^\.:53 \{", ".:0 {\n bind 127.0.0.1"),
            (r"^( +)health", r"\1health 127.0.0.1:0"),
            (r"^( +)ready", r"\1ready 127.0.0.1:0"),
            (":9153", "127.0.0.1:0"),
            ("lameduck 5s", "lameduck 1s"),
            ("/etc/resolv.conf", self.upstream),
            ("/var/lib/kdns/", f"{self.folder}/{len(self.processes)}-{deployment}-"),
            (r"^( +)kubernetes .*", rf"\g<0>\n\1endpoint {api}"),
        ):
            text, count = re.subn(word, own, text, flags=re.MULTILINE)
            assert count == 1, f"{word} in {text}"
        corefile = self.folder / f"Corefile-{len(self.processes)}-{deployment}"
        corefile.write_text(text)
        command = [sys.executable, "-m", "kdns", "serve", "-conf", str(corefile)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert process.stdout
        port = 0
        for line in process.stdout:
            if match := re.match(r"dns +127\.0\.0\.1:(\d+)", line):
                port = int(match[1])
            if line == "ready\n":
                return process, port
        raise AssertionError(f"{deployment} has not started: {text}")


def end(processes: Sequence[subprocess.Popen[str]]) -> None:
    """End them all at once: each is a lame duck for a while."""
    for process in processes:
        process.terminate()
    for process in processes:
        process.communicate(timeout=DEADLINE_S)


@contextmanager
def pods(cluster: Running, upstream: str, folder: Path) -> Iterator[Pods]:
    running = Pods(cluster, upstream, folder)
    try:
        yield running
    finally:
        end([process for process, _ in running.processes.values()])


def test_answers_are_the_same_before_between_and_after(tmp_path: Path) -> None:
    (tmp_path / "before.yaml").write_text(BEFORE)
    with ExitStack() as stack:
        records = (
            "www.outside.example. 60 IN A 198.51.100.7",
            "7.2.0.192.in-addr.arpa. 60 IN PTR host.outside.example.",
        )
        upstream = stack.enter_context(resolver(tmp_path, *records))
        cluster = stack.enter_context(kdns_up(tmp_path, "before.yaml"))
        service = str(ROOT / "deploy" / "service.yaml")
        cluster.kubectl("apply", "-f", service)
        running = stack.enter_context(pods(cluster, upstream, tmp_path))
        running.sync({"coredns": 2})
        before = running.answers()
        cluster.kubectl("apply", "-k", str(ROOT / "deploy"))
        running.sync({"coredns": 2, "kdns": 2})
        between = running.answers()
        cluster.kubectl("-n", "kube-system", "scale", "deployment/coredns", "--replicas=0")
        running.sync({"kdns": 2})
        over = running.answers()
        cluster.kubectl("-n", "kube-system", "scale", "deployment/coredns", "--replicas=2")
        cluster.kubectl("-n", "kube-system", "delete", "deployment/kdns")
        running.sync({"coredns": 2})
        after = running.answers()
    expected = before[0]
    assert [len(answers) for answers in (before, between, over, after)] == [2, 4, 2, 2]
    for answers in (*before, *between, *over, *after):
        assert answers == expected
    assert ("www.outside.example A", "NOERROR", ("www.outside.example. A 198.51.100.7",)) in expected
    assert ("nothing.default.svc.cluster.local A", "NXDOMAIN", ()) in expected
