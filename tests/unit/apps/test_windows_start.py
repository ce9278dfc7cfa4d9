"""`kdns proxy` as on Windows: without the modules, signals and sockets that it lacks, on simulated libraries.

A process of this machine stands in for one of Windows: what Windows lacks is removed from it before kdns is imported.
It shows that nothing on the way needs it, and nothing about Windows itself.
"""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

from _process import free_port

from kdns.testing import cluster

TESTS: Final = Path(__file__).parents[2]
UNIX_MODULES: Final = ("fcntl", "resource", "termios", "tty", "pty", "grp", "pwd", "syslog", "readline")
HIDDEN: Final = f"""
import importlib.abc, sys

class Hidden(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name in {UNIX_MODULES}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

for name in {UNIX_MODULES}:
    sys.modules.pop(name, None)
sys.meta_path.insert(0, Hidden())
"""


def ran(program: str) -> str:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_command_is_imported_without_modules_of_unix() -> None:
    imported = ran(
        f"{HIDDEN}import kdns.__main__, kdns.cli.main, kdns.cli.commands.proxy\n"
        "from kdns.proxy.takeover.io.modes import clean_ups, runtime\n"
        "clean_ups(), runtime('kernelspace')\n"
        "import kdns.proxy.kernelspace.io.start\n"
        f"print([name for name in {UNIX_MODULES} if name in sys.modules])"
    )
    assert imported == "[]\n"


WINDOWS: Final = f"""
import asyncio, ctypes, json, os, select, signal, socket, ssl, sys
sys.path[:0] = {[str(TESTS / each) for each in ("support", "netns/inside")]}
import aiohttp, cachetools, click, kubernetes, msgspec, prometheus_client, structlog, yaml  # they ask for the platform
{HIDDEN}
pair, unix = socket.socketpair, socket.AF_UNIX
socket.socketpair = lambda: pair(unix)  # of asyncio, which has sockets of TCP on Windows
for module, names in (
    (signal, ("SIGHUP", "SIGUSR1", "SIGUSR2", "pthread_sigmask", "SIG_BLOCK", "SIG_UNBLOCK", "SIG_SETMASK")),
    (socket, ("AF_UNIX", "AF_NETLINK", "SO_REUSEPORT", "SOCK_CLOEXEC", "SOCK_NONBLOCK", "SO_PEERCRED")),
    (select, ("poll", "epoll")),
    (os, ("uname", "geteuid", "getuid", "fork", "killpg", "setsid")),
):
    for name in names:
        delattr(module, name)

def unsupported(*_):
    raise NotImplementedError

asyncio.unix_events._UnixSelectorEventLoop.add_signal_handler = unsupported
asyncio.unix_events._UnixSelectorEventLoop.remove_signal_handler = unsupported
sys.platform = "win32"
ssl.enum_certificates = lambda _store: []

class Library:
    functions = {{}}

    def __init__(self, name, **_):
        self.name = name

    def __getattr__(self, name):
        if name not in self.functions:
            raise AttributeError(f"function '{{name}}' not found")
        return self.functions[name]

ctypes.WinDLL, ctypes.get_last_error = Library, lambda: 0
from fake_hcn import FakeHcn, FakeLibraries
service = FakeHcn(version=(13, 2))
service.add_pod("10.244.1.5")
libraries = FakeLibraries(service)

class Function:
    '''A function whose types can be set, as those of ctypes.'''

    def __init__(self, called):
        self.called = called

    def __call__(self, *arguments):
        return self.called(*arguments)

Library.functions = {{name: Function(each) for name, each in libraries.functions.items()}}
Library.functions["CreateMutexW"] = Function(lambda *_: 1)
"""

MANIFESTS: Final = """
apiVersion: v1
kind: Node
metadata: {name: win}
status: {addresses: [{type: InternalIP, address: 192.0.2.1}]}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {clusterIP: 10.96.0.80, ports: [{port: 80}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{port: 8080}]
endpoints: [{addresses: [10.244.1.5], nodeName: win}, {addresses: [10.244.2.5], nodeName: other}]
"""


def test_a_node_starts_and_stops_on_simulated_libraries() -> None:
    program = (
        f"{WINDOWS}\n"
        "from kdns.__main__ import main\n"
        "try:\n"
        "    main()\n"
        "finally:\n"
        "    print(json.dumps([list(service.load_balancers.values()), len(libraries.handles)]), flush=True)\n"
    )
    with cluster(MANIFESTS) as served:
        arguments = ["--master", served.api, "--proxy-mode", "kernelspace", "--network-name", "Pods", "--enable-dsr"]
        healthz, metrics = free_port(), free_port()
        ports = ["--healthz-bind-address", f"127.0.0.1:{healthz}", "--metrics-bind-address", f"127.0.0.1:{metrics}"]
        command = [sys.executable, "-c", program, "proxy", *arguments, *ports, "--hostname-override", "win"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as node:
            assert node.stdout
            lines = []
            for line in node.stdout:
                lines.append(line)
                if line == "ready\n":
                    node.send_signal(signal.SIGINT)
            assert node.stderr
            said = node.stderr.read()
            assert "ready\n" in lines, (lines, said)
            assert node.wait(60) == 0, (lines, said)
    balancers, handles = json.loads(lines[-1])
    vips = {balancer["FrontendVIPs"][0]: balancer for balancer in balancers}
    assert vips["10.96.0.80"]["Flags"] == 1
    assert len(vips["10.96.0.80"]["HostComputeEndpoints"]) == 2
    assert handles == 0


def test_a_clean_up_removes_what_a_node_has_left() -> None:
    program = (
        f"{WINDOWS}\n"
        "from kdns.proxy.kernelspace.schema import LoadBalancerKey, load_balancer_id\n"
        "mappings = [{'Protocol': 6, 'InternalPort': 8080, 'ExternalPort': 80}]\n"
        "own = load_balancer_id(LoadBalancerKey('IPv4', '10.96.0.80', 6, 80))\n"
        "for name in (own, '6a0d3e8c-0000-4000-8000-000000000001'):\n"
        "    vips = ['10.96.0.80'] if name == own else ['10.96.0.81']\n"
        "    service.load_balancers[name] = {'ID': name, 'FrontendVIPs': vips, 'PortMappings': mappings}\n"
        "sys.argv = ['kdns', 'proxy', '--cleanup', '--network-name', 'Pods']\n"
        "from kdns.__main__ import main\n"
        "try:\n"
        "    main()\n"
        "finally:\n"
        "    print(list(service.load_balancers), flush=True)\n"
    )
    removed, left = ran(program).splitlines()
    assert removed.startswith("removed     load balancer ")
    assert left == "['6a0d3e8c-0000-4000-8000-000000000001']"
