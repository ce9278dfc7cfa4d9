"""`kdns up --proxy-mode userspace` as a person without root has it: Services can be reached, by name and by address."""

import os
import shutil
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from expecting import until_as
from kdns_process import DEADLINE_S, kdns_up

SERVICE = """
apiVersion: v1
kind: Service
metadata: {{name: {name}}}
spec: {spec}
---
apiVersion: v1
kind: Endpoints
metadata: {{name: {name}}}
subsets:
- addresses: [{{ip: {address}}}]
  ports: [{{port: {port}}}]
---"""
SPECS = {"web": "{type: NodePort, ports: [{port: 8080}]}", "low": "{ports: [{port: 80}]}"}
RANGES = ("--service-cidr", "127.96.0.0/16", "--pod-cidr", "10.244.0.0/16")


def own_address() -> str:
    """An address of this machine that is not loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.254", 9))  # sends nothing
        except OSError:
            pytest.skip("this machine has no network, and endpoints may not be loopback")
        return str(probe.getsockname()[0])


@contextmanager
def greeting(address: str) -> Iterator[int]:
    """Somebody who says hello; the port."""

    def serve(listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            with client:
                client.sendall(b"hello")

    with socket.create_server((address, 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,), daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(DEADLINE_S)


def said(address: str, port: int) -> str:
    try:
        with socket.create_connection((address, port), DEADLINE_S) as client:
            return client.recv(100).decode()
    except ConnectionError as error:
        return type(error).__name__


def without_privileges(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let programs that Python starts as itself have none of root's capabilities."""
    if os.geteuid() != 0:
        return
    if not shutil.which("setpriv"):
        pytest.skip("root needs setpriv, so that its rules stay as they are")
    wrapper = folder / "python"
    wrapper.write_text(f'#!/bin/sh\nexec setpriv --bounding-set=-all --inh-caps=-all {sys.executable} "$@"\n')
    wrapper.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(wrapper))


def test_services_can_be_reached_without_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_privileges(tmp_path, monkeypatch)
    address = own_address()
    with greeting(address) as port:
        services = [SERVICE.format(name=name, spec=spec, address=address, port=port) for name, spec in SPECS.items()]
        (tmp_path / "web.yaml").write_text("".join(services))
        with kdns_up(tmp_path, "web.yaml", "--proxy-mode", "userspace", *RANGES) as up:
            [vip] = up.rdata("web.default.svc.cluster.local")
            assert vip.startswith("127.96.")
            until_as("hello", lambda: said(vip, 8080), vip)
            node_port = int(up.kubectl("get", "service", "web", "-o", "jsonpath={.spec.ports[0].nodePort}"))
            assert said("127.0.0.1", node_port) == "hello"
            up.kubectl("delete", "endpoints", "web")
            until_as("ConnectionRefusedError", lambda: said(vip, 8080), vip)
            if Path("/proc/sys/net/ipv4/ip_unprivileged_port_start").read_text().strip() == "1024":
                up.wait_for("default/low.*ports below 1024 need the capability NET_BIND_SERVICE")
