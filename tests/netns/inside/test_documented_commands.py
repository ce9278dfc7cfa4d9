"""Every command of README.md, docs/ and deploy/README.md, typed in a fresh clone, prints what its page says.

The machine is a network namespace with one link, and an /etc whose changes nobody else sees. `sudo` does what it is
told, and `systemctl restart dnsmasq` starts the program. Pages stand in the order of PAGES. A command that cannot be
typed here is a row of NOT_RUN, with the reason.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryFile
from textwrap import dedent
from typing import Final, NamedTuple

import pytest
from kdns_process import ROOT

from kdns.proxy.nftables.objects import NFT_FAMILY, TABLE

README: Final = ("README", "docs/trace")
PAGES: Final = (
    *README,
    "docs/env",
    "docs/proxy",
    "docs/serve",
    "docs/shell",
    "docs/check",
    "docs/render",
)
PAGES_LAST: Final = ("docs/up", "deploy/README", "docs/laptop", "docs/userspace", "docs/modes")
DEADLINE_S: Final = 60.0
FENCE: Final = re.compile(
    r"^(?P<indent> *)```(?P<language>\S*)\n(?P<text>.*?)^(?P=indent)```$", re.MULTILINE | re.DOTALL
)
SERVER: Final = re.compile(r"(?:sudo )?(?:\.venv/bin/)?kdns (?P<kind>up|serve|proxy) ?(?P<rest>.*)|make up\b.*")
DEFAULT: Final = "kdns up examples"
ASKING: Final = ("dig ", "getent ", "curl ")
"""Programs that may be asked again until the answer is there, and have one."""

_AS_IN_DEPLOY: Final = {"kubectl -n kube-system": "deploy/README has the same commands, and they are typed there"}
NOT_RUN: Final = {
    "docs/tasks/replace-coredns": _AS_IN_DEPLOY,
    "docs/tasks/replace-kube-proxy": _AS_IN_DEPLOY,
    "docs/tasks/upgrade": _AS_IN_DEPLOY,
    "docs/tasks/why": {"kdns explain": "tests/unit/explain has clusters with such names"},
    "README": {"make test": "it runs this test"},
    "CONTRIBUTING": {"make ": "CI runs them"},
    "docs/benchmarks": {"python bench/": "they take minutes, and .ci runs none"},
    "docs/check": {"kdns check Corefile": "tests/unit/cli/test_check.py has files with these mistakes"},
    "docs/laptop": {
        "sudo mkdir -p /etc/systemd": "needs systemd-resolved as the init's service",
        "sudo tee /etc/systemd": "the same",
        "sudo systemctl restart systemd-resolved": "the same",
        "sudo rm /etc/systemd": "the same",
        "sudo tee /etc/NetworkManager": "needs NetworkManager, whose dnsmasq gets the lines that dnsmasq has here",
        "sudo systemctl restart NetworkManager": "the same",
        "sudo rm /etc/NetworkManager": "the same",
        "sudo mkdir -p /etc/resolver": "needs macOS",
        "printf 'nameserver": "the same",
        "sudo rm /etc/resolver": "the same",
    },
    "docs/modes": dict.fromkeys(("ip address", "ipset", "ipvsadm"), "needs a kernel with IPVS: tests/kernel has one"),
    "docs/node-local": {
        "kdns serve": "test_node_local.py runs it with a cluster's addresses",
        "ip ": "needs a kernel with dummy links",
    },
    "docs/proxy-kernelspace": {"kdns proxy": "needs Windows"},
    "docs/userspace": {"kdns up": "docs/laptop.md has it with manifests"},
    "deploy/README": {
        "podman ": "needs podman; tests/netns/test_image.py runs the steps of the image, and reads this file",
        "helm ": "needs Helm; tests/live/kubectl/test_chart_applied.py applies what it renders",
        "sudo cp deploy/systemd": "needs systemd as process 1",
        "sudo systemctl": "the same",
    },
    "docs/shell": {'eval "$(kdns completion zsh': "needs zsh"},
}
"""Page → beginning of commands → why they are not run."""


def block(page: str, text: str) -> str:
    content = (ROOT / f"{page}.md").read_text(encoding="utf-8")
    return next(match["text"] for match in FENCE.finditer(content) if text in match["text"])


def file(path: str, text: str) -> str:
    return f"mkdir -p $(dirname {path}); cat > {path} <<'END'\n{text}\nEND"


SHOP: Final = """
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Namespace, metadata: {name: shop}}
- {apiVersion: v1, kind: Node, metadata: {name: worker-1}}
- apiVersion: v1
  kind: Service
  metadata: {name: cart, namespace: shop}
  spec: {ports: [{name: http, port: 80}]}
- apiVersion: discovery.k8s.io/v1
  kind: EndpointSlice
  metadata: {name: cart-1, namespace: shop, labels: {kubernetes.io/service-name: cart}}
  addressType: IPv4
  endpoints: [{addresses: [10.244.3.9], nodeName: worker-1}]
  ports: [{name: http, port: 8080}]
"""
COREDNS: Final = ".:5300 {\n    kubernetes cluster.local {\n        kubeconfig kdns.kubeconfig\n    }\n}"
OF_KUBEADM: Final = """kubectl apply -f - <<'END'
apiVersion: v1
kind: ConfigMap
metadata: {name: coredns, namespace: kube-system}
data: {Corefile: ".:53 {\\n  errors\\n  forward . 192.0.2.53\\n}\\n"}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: kube-proxy, namespace: kube-system}
data:
  config.conf: |
    apiVersion: kubeproxy.config.k8s.io/v1alpha1
    kind: KubeProxyConfiguration
    clusterCIDR: 10.244.0.0/16
    mode: ""
END"""
OF_A_CLUSTER: Final = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: coredns, namespace: kube-system}
spec:
  replicas: 2
  selector: {matchLabels: {k8s-app: kube-dns, is: coredns}}
  template:
    metadata: {labels: {k8s-app: kube-dns, is: coredns}}
    spec: {containers: [{name: coredns, image: coredns}]}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: kube-proxy, namespace: kube-system}
spec:
  selector: {matchLabels: {k8s-app: kube-proxy}}
  template:
    metadata: {labels: {k8s-app: kube-proxy}}
    spec:
      nodeSelector: {kubernetes.io/os: linux}
      containers: [{name: kube-proxy, image: kube-proxy}]
"""


def ready(number: int, kind: str, name: str) -> str:
    names = {"deployment": "readyReplicas", "daemonset": "numberReady"}
    wanted = f"--for=jsonpath='{{.status.{names[kind]}}}'={number}"
    if kind == "deployment" and not number:
        return "kubectl -n kube-system wait --for=delete pod -l is=coredns --timeout=60s"
    return f"kubectl -n kube-system wait {kind}/{name} {wanted} --timeout=60s"


ON_A_LAPTOP: Final = "sudo .venv/bin/kdns up --proxy-mode nftables web.yaml"
BEFORE: Final = {
    "docs/check": {"kubectl --namespace kube-system get configmap": [DEFAULT, OF_KUBEADM]},
    "docs/laptop": {
        "sudo .venv/bin/kdns up": [file("web.yaml", block("docs/laptop", "kind: Service"))],
        "sudo .venv/bin/kdns laptop on": [ON_A_LAPTOP, "mkdir -p /etc/dnsmasq.d"],
        "sudo tee /etc/dnsmasq": [ON_A_LAPTOP],
        "getent hosts kubernetes": [block("docs/laptop", "tee /etc/dnsmasq")],
    },
    "docs/modes": {
        "nft list table": [ON_A_LAPTOP],
        "iptables-save": [file("shop.yaml", SHOP), "kdns up --proxy-mode iptables shop.yaml"],
    },
    "docs/proxy": {
        "kdns proxy --kubeconfig": [DEFAULT, "mkdir -p /etc/kubernetes; cp kdns.kubeconfig /etc/kubernetes/proxy.conf"],
        "kdns proxy --config": [
            file(
                "/etc/kdns/config.conf",
                block("docs/proxy-config", "kind: KubeProxyConfiguration")
                + "clientConnection: {kubeconfig: kdns.kubeconfig}",
            )
        ],
    },
    "docs/serve": {
        "kdns serve --conf": [DEFAULT, file("Corefile", COREDNS)],
        "kdns serve -conf": [file("/etc/coredns/Corefile", COREDNS)],
    },
    "docs/trace": {"kubectl get": [DEFAULT, f"kubectl apply -f - <<'END'{SHOP}\nEND"]},
    "docs/up": {
        "kubectl patch node": [f"kubectl apply -f - <<'END'\n{block('docs/up', 'name: node-2')}\nEND"],
        "kubectl apply -f nginx.yaml": [file("nginx.yaml", block("docs/up", "kind: StatefulSet"))],
        "kubectl apply --server-side -f": ["kubectl delete --ignore-not-found -f nginx.yaml"],
    },
    "deploy/README": {
        "kubectl -n kube-system get configmap": [OF_KUBEADM],
        "kubectl -n kube-system set image deployment/coredns": [
            f"kubectl apply -f - <<'END'{OF_A_CLUSTER}\nEND",
            ready(2, "deployment", "coredns"),
        ],
        "kubectl apply -k deploy/\n": [
            f"kubectl apply -f - <<'END'{OF_A_CLUSTER}\nEND",
            ready(2, "deployment", "coredns"),
        ],
        "nft delete table ip kdns": [f"nft add table {family} {TABLE}" for family in NFT_FAMILY.values()],
    },
}
"""Page → beginning of a command → what was done before it, by the page's words or by whoever has such a cluster."""
AFTER: Final = {
    "docs/laptop": {
        "sudo .venv/bin/kdns laptop on": [
            "getent hosts kubernetes.default.svc.cluster.local",
            "kdns laptop status",
            "sudo .venv/bin/kdns laptop off",
            "! getent hosts kubernetes.default.svc.cluster.local",
        ],
    },
    "deploy/README": {
        "kubectl -n kube-system rollout undo deployment/coredns": [
            "kubectl -n kube-system rollout status deployment/coredns",
            "kubectl -n kube-system get deployment coredns -o jsonpath='{..image}' | grep -x coredns",
        ],
        "kubectl -n kube-system scale deployment/coredns --replicas=0": [
            ready(2, "deployment", "kdns"),
            ready(0, "deployment", "coredns"),
        ],
        "kubectl delete -f deploy/deployment.yaml": [
            ready(2, "deployment", "coredns"),
            "kubectl -n kube-system get service kube-dns",
        ],
        "kubectl -n kube-system patch daemonset kube-proxy -p": [
            ready(1, "daemonset", "kdns-proxy"),
            ready(0, "daemonset", "kube-proxy"),
        ],
        "kubectl delete -f deploy/proxy/cleanup.yaml": [
            ready(1, "daemonset", "kube-proxy"),
            "! kubectl get all,configmaps,serviceaccounts,clusterroles -A -l app.kubernetes.io/name | grep kdns",
        ],
    },
}
"""The same for what holds after it."""


class Command(NamedTuple):
    """A command of a page, and what it prints there."""

    text: str
    printed: str


def commands(page: Path) -> Iterator[Command]:
    """Those of all blocks of a shell, in the order of the page."""
    for match in FENCE.finditer(page.read_text(encoding="utf-8")):
        if match["language"] == "console":
            for entry in re.split(r"^\$ ", match["text"], flags=re.MULTILINE)[1:]:
                (text, *printed) = _typed(entry)
                yield Command(text, "".join(printed))
        elif match["language"] in {"sh", "bash", "shell"}:
            rest = dedent(match["text"])
            while rest:
                text, rest = _typed(rest)
                if not text.startswith("#"):
                    yield Command(text, "")


def _typed(text: str) -> tuple[str, str]:
    """The first command, with its continued lines or its here-document, and what follows."""
    lines = text.splitlines(keepends=True)
    end = 1
    while lines[end - 1].endswith("\\\n"):
        end += 1
    if re.search(r"<<'?EOF", lines[end - 1]):
        end += 1 + lines[end:].index("EOF\n")
    return "".join(lines[:end]), "".join(lines[end:])


def rows(table: dict[str, dict[str, list[str]]], page: str, command: str) -> list[str]:
    return [each for start, found in table.get(page, {}).items() if command.startswith(start) for each in found]


@dataclass
class Machine:
    """Where the commands are typed: a clone of the project, with a virtual environment that `make up` finds ready."""

    clone: Path
    environment: dict[str, str]
    servers: dict[str, tuple[str, subprocess.Popen[bytes]]] = field(default_factory=dict)
    sessions: list[int] = field(default_factory=list)

    def type(self, command: Command) -> None:
        """Type it; a server is left running until another of its kind takes its place."""
        if match := SERVER.match(command.text):
            kind = match["kind"] or "up"
            if not re.search(r"--(cleanup|init-only|write-config-to|version)", match["rest"] or ""):
                self._serve(kind, DEFAULT if match["kind"] is None else command.text.strip())
                return
        if "up" not in self.servers and re.search(r"kubectl|dig |curl |http://127", command.text):
            self._serve("up", DEFAULT)
        deadline_s = time.monotonic() + DEADLINE_S
        while not (is_right := self._typed(command)).ok:
            is_late = time.monotonic() > deadline_s or not command.text.startswith(ASKING)
            assert not is_late, (command, is_right.printed)
            time.sleep(0.1)

    class Said(NamedTuple):
        ok: bool
        printed: str

    def _typed(self, command: Command) -> Said:
        with TemporaryFile() as output:  # no pipe: what goes on in the background has it too
            process = subprocess.Popen(
                ["bash", "-c", f"set -eo pipefail\n{command.text}"],
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=self.clone,
                env=self.environment,
                start_new_session=True,
            )
            self.sessions.append(process.pid)
            code = process.wait(DEADLINE_S)
            output.seek(0)
            printed = output.read().decode()
        if command.text.startswith(ASKING) and (not printed or "\n;; no servers" in printed):
            code = code or 1
        if wanted := re.search(r"# ([A-Z]{5,})$", command.text.strip()):
            code = code or int(wanted[1] not in printed)
        pattern = re.escape(command.printed).replace("…", ".*")
        return self.Said(code == 0 and bool(not pattern or re.fullmatch(pattern, printed, re.DOTALL)), printed)

    def _serve(self, kind: str, command: str) -> None:
        running, process = self.servers.get(kind, ("", None))
        if process and running == command and process.poll() is None:
            return
        self.stop(() if kind == "up" else (kind,))
        if kind == "proxy" or "--proxy-mode" in command:
            self.stop(("proxy",))
        log = self.clone.parent / f"{kind}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                ["bash", "-c", command],
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=self.clone,
                env=self.environment,
                start_new_session=True,
            )
        self.servers[kind] = command, process
        deadline_s = time.monotonic() + DEADLINE_S
        while not re.search(r"^ready$", text := log.read_text(), re.MULTILINE):
            is_late = time.monotonic() > deadline_s or process.poll() is not None
            assert not is_late, f"{command}\n{text}"
            time.sleep(0.05)

    def stop(self, kinds: tuple[str, ...] = ()) -> None:
        for kind in kinds or ("proxy", "serve", "up"):
            if found := self.servers.pop(kind, None):
                os.killpg(found[1].pid, signal.SIGTERM)
                found[1].wait(DEADLINE_S)


NETWORK: Final = (
    "link set lo up",
    "link add eth0 type veth peer name beyond",
    "link set eth0 up",
    "link set beyond up",
    "address add 192.0.2.2/24 dev eth0",
    "route add default via 192.0.2.1",
)
SUDO: Final = '#!/bin/sh\nexec "$@"\n'
SYSTEMCTL: Final = """#!/bin/sh
test "$*" = "restart dnsmasq" || exit 1
while kill $(cat /run/dnsmasq.pid) 2>/dev/null; do sleep 0.02; done
exec dnsmasq --conf-file=/dev/null --conf-dir=/etc/dnsmasq.d --no-resolv --listen-address=127.0.0.1 --bind-interfaces \\
    --user=root --pid-file=/run/dnsmasq.pid
"""


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    missing = [
        each for each in ("git", "dig", "curl", "kubectl", "dnsmasq", "make", "iptables") if not shutil.which(each)
    ]
    if missing or not (ROOT / ".git").exists():
        pytest.skip(f"needs a checkout of the project, and {missing}")

    def run(*command: str, **more: str) -> str:
        return subprocess.run(command, capture_output=True, text=True, check=True, **more).stdout  # type: ignore[call-overload,no-any-return]

    for each in NETWORK:
        run("ip", *each.split())
    etc = tmp_path / "etc"
    run("mount", "--mkdir", "-t", "tmpfs", "tmpfs", str(etc))
    for each in ("upper", "work"):
        (etc / each).mkdir()
    run("mount", "-t", "overlay", "overlay", "-o", f"lowerdir=/etc,upperdir={etc}/upper,workdir={etc}/work", "/etc")
    Path("/etc/resolv.conf").unlink(missing_ok=True)
    Path("/etc/resolv.conf").write_text("nameserver 127.0.0.1\n")
    clone, programs = tmp_path / "kdns", tmp_path / "bin"
    run("git", "clone", "--quiet", str(ROOT), str(clone))
    if changed := run("git", "-C", str(ROOT), "diff", "HEAD", "--binary"):
        run("git", "-C", str(clone), "apply", input=changed)
    programs.mkdir()
    for name, text in {"sudo": SUDO, "systemctl": SYSTEMCTL}.items():
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    (clone / ".venv").mkdir()
    (clone / ".venv" / "bin").symlink_to(Path(sys.executable).parent)
    (clone / ".venv" / "ready").touch()
    path = f"{programs}:{clone}/.venv/bin:{os.environ['PATH']}"
    home = tmp_path / "home"
    home.mkdir()
    (home / ".curlrc").write_text("silent\nshow-error\n")  # as on a terminal
    made = Machine(clone, {**os.environ, "PATH": path, "HOME": str(home), "KUBECONFIG": str(clone / "kdns.kubeconfig")})
    yield made
    made.stop()
    for session in made.sessions:  # of commands whose last process goes on in the background
        with suppress(ProcessLookupError):
            os.killpg(session, signal.SIGTERM)
    subprocess.run(["sh", "-c", "kill $(cat /run/dnsmasq.pid) 2>/dev/null"], check=False)


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT).with_suffix(""))


def all_pages() -> tuple[str, ...]:
    found = (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("deploy/*.md"))
    between = {name_of(page) for page in found} - {*PAGES, *PAGES_LAST}
    return *PAGES, *sorted(between), *PAGES_LAST


@pytest.mark.parametrize(
    "pages", [README, pytest.param(all_pages(), marks=pytest.mark.release)], ids=["of the README", "of every page"]
)
def test_commands(machine: Machine, pages: tuple[str, ...]) -> None:
    """tests/unit/cli/test_docs.py has every command of every page parsed."""
    used: set[tuple[str, str]] = set()
    for page in pages:
        for command in commands(ROOT / f"{page}.md"):
            left = [each for each in NOT_RUN.get(page, {}) if command.text.startswith(each)]
            used |= {(page, each) for each in left}
            used |= {
                (page, each)
                for table in (BEFORE, AFTER)
                for each in table.get(page, {})
                if command.text.startswith(each)
            }
            if left:
                continue
            for row in (*rows(BEFORE, page, command.text),):
                machine.type(Command(row, ""))
            machine.type(command)
            for row in rows(AFTER, page, command.text):
                machine.type(Command(row, ""))
    tables = (NOT_RUN, BEFORE, AFTER)
    rows_of_pages = {(page, start) for table in tables for page in pages for start in table.get(page, ())}
    assert rows_of_pages == used
