"""Ways through a node, in the kernel: a client, a node and endpoints, each in a network namespace of its own.

    client   10.200.0.2, fd00:128:c8::2 — the node — 10.201.0.2, fd00:128:c9::2   the addresses of all endpoints

The client is a Pod of the node. Lanes know nothing of each other, so the rules of one cost the others nothing.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

from _process import read_until, running
from _vip_ends import Turn
from _vip_services import TARGET_PORT

ENDS: Final = str(Path(__file__).with_name("_vip_ends.py"))
CLIENT, PODS = ("10.200.0", "fd00:128:c8:"), ("10.201.0", "fd00:128:c9:")
SYSCTLS: Final = (
    "ipv4/ip_forward=1",
    "ipv6/conf/all/forwarding=1",
    "ipv4/conf/all/rp_filter=0",
    "ipv4/conf/default/rp_filter=0",
    "netfilter/nf_conntrack_tcp_timeout_close=1",
    "netfilter/nf_conntrack_tcp_timeout_time_wait=1",
    "netfilter/nf_conntrack_udp_timeout=1",
    "netfilter/nf_conntrack_udp_timeout_stream=1",
)
"""The node lets packets through, and forgets the connections of one turn before the next."""


class Asker(NamedTuple):
    """The client's end of a lane."""

    process: subprocess.Popen[str]

    def turn(self, kind: str, address: str, port: int, seconds: float) -> Turn:
        """Ask "tcp" or "udp" for some time; SystemExit where nobody answers."""
        assert self.process.stdin  # noqa: S101 - asked for
        assert self.process.stdout  # noqa: S101 - asked for
        self.process.stdin.write(f"{kind} {address} {port} {seconds}\n")
        self.process.stdin.flush()
        return Turn(*json.loads(self.process.stdout.readline()))


@contextmanager
def lane(
    name: str, endpoints: Sequence[str], argv: Sequence[str], rules: str, core: frozenset[int], *, serves: bool = False
) -> Iterator[Asker]:
    """A client whose way leads through a node with these rules, given to a program, which runs on if it `serves`."""
    spaces = [f"kdns-{os.getpid()}-{name}-{part}" for part in ("client", "node", "pods")]
    client, node, pods = spaces
    with ExitStack() as leaving:
        for space in spaces:
            _ip("netns", "add", space)
            leaving.callback(_ip, "netns", "delete", space)
            _ip("-n", space, "link", "set", "lo", "up")
        for setting in SYSCTLS:
            _set(node, setting)
        _set(client, "ipv4/ip_local_port_range=2000 65000")
        for space, link, prefixes in ((client, "client", CLIENT), (pods, "pods", PODS)):
            _connect(node, space, link, prefixes)
        for address in endpoints:
            _ip("-n", pods, "address", "add", address, "dev", "lo", *(("nodad",) if ":" in address else ()))
            by = PODS[":" in address]
            _ip("-n", node, "route", "add", address, "via", f"{by}:2" if ":" in address else f"{by}.2")
        if serves:
            Path(f"/run/{name}.rules").write_text(rules)
            log = Path(f"/run/{name}-node.log")
            from_file = ["sh", "-c", f'exec "$@" </run/{name}.rules', "sh", *argv, ",".join(map(str, core))]
            read_until(leaving.enter_context(running([*_into(node), *from_file], core, log)), "ready", log)
        elif argv:
            done = _inside(node, *argv, given=rules)
            if done.returncode:
                raise SystemExit(f"{' '.join(argv)} does not take the rules: {done.stderr[:2000]}")
        log = Path(f"/run/{name}.log")
        server = [*_into(pods), sys.executable, ENDS, "endpoints", str(TARGET_PORT), *endpoints]
        process = leaving.enter_context(running(server, core, log))
        read_until(process, "ready", log)
        asking = [*_into(client), sys.executable, ENDS, "client"]
        asker = subprocess.Popen(asking, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        leaving.enter_context(asker)
        leaving.callback(asker.terminate)
        os.sched_setaffinity(asker.pid, core)
        for each in (process, asker):
            _goes_first(each.pid)
        yield Asker(asker)


def _connect(node: str, space: str, link: str, prefixes: tuple[str, str]) -> None:
    _ip("-n", node, "link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", space)
    for number, (where, device) in enumerate(((node, link), (space, "eth0")), 1):
        _ip("-n", where, "link", "set", device, "up", "addrgenmode", "none")
        _ip("-n", where, "address", "add", f"{prefixes[0]}.{number}/24", "dev", device)
        for address in (
            f"{prefixes[1]}:{number}/64",
            f"fe80::{number}/64",
        ):  # routers ask for neighbours from the latter
            _ip("-n", where, "address", "add", address, "dev", device, "nodad")
    for gateway in (f"{prefixes[0]}.1", f"{prefixes[1]}:1"):
        _ip("-n", space, "route", "add", "default", "via", gateway)


def _goes_first(pid: int) -> None:
    """Let nothing else on the machine have the core while a question is under way, if that is allowed."""
    with suppress(PermissionError):
        os.sched_setscheduler(pid, os.SCHED_RR, os.sched_param(1))


def _into(space: str) -> tuple[str, ...]:
    return "ip", "netns", "exec", space


def _inside(space: str, *argv: str, given: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run([*_into(space), *argv], input=given, capture_output=True, text=True, check=False)


def _set(space: str, setting: str) -> None:
    name, _, value = setting.partition("=")
    done = _inside(space, "tee", f"/proc/sys/net/{name}", given=value)
    if done.returncode:
        raise SystemExit(f"{setting}: {done.stderr}")


def _ip(*arguments: str) -> None:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"ip {' '.join(arguments)}: {done.stderr}")
