"""A kernel that was started with ipv6.disable=1: IPv4 is served in every mode, of dual-stack Services too.

tests/kernel starts such a kernel. Elsewhere this process and its children lose what they would not have there: sockets
of IPv6, by a seccomp filter, and the settings in /proc.
"""

import asyncio
import ctypes
import errno
import platform
import socket
import struct
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest
from packet_probe import PATIENCE_S
from small_cluster import CLIENTS, CONFIG, ENDPOINTS, NODE_VIEW, both, endpoints, service, state
from world import World

from kdns.cluster.objects import EndpointSlice, Service
from kdns.proxy.nftables.io.proxier import NftablesProxier, clean_up
from kdns.proxy.sync.io.conntrack import ConntrackReconciler
from kdns.proxy.sync.io.proxier import Proxier
from kdns.proxy.sync.io.runner import SyncRunner
from kdns.proxy.sync.schedule import SyncTiming
from kdns.proxy.userspace.io.proxier import UserspaceProxier
from kdns.proxy.userspace.mode import USERSPACE

FRONTS: Final = (
    ("pod1", both("vip", 1)[0], 80),
    ("outside", both("lb", 1)[0], 80),
    ("outside", CLIENTS["node"][0], 30001),
    ("node", both("vip", 1)[0], 80),
)
SOCKET_CALL: Final = {"x86_64": 41, "aarch64": 198}
"""The number of socket(2), by machine."""
_LOAD, _IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 22, 2


def lose_ipv6(call: int) -> None:
    """Let socket(AF_INET6, …) fail from here on, and hide the settings."""
    script = "echo 1 >/proc/sys/net/ipv6/conf/all/disable_ipv6 && mount -t tmpfs none /proc/sys/net/ipv6"
    subprocess.run(["sh", "-c", script], check=True)
    instructions = (
        *((_LOAD, 0, 0, 0), (_IF_EQUAL, 0, 3, call)),
        *((_LOAD, 0, 0, 16), (_IF_EQUAL, 0, 1, int(socket.AF_INET6))),
        (_RETURN, 0, 0, _ERRNO | errno.EAFNOSUPPORT),
        (_RETURN, 0, 0, _ALLOW),
    )
    code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *instruction) for instruction in instructions))
    program = ctypes.create_string_buffer(struct.pack("@HP", len(instructions), ctypes.addressof(code)))
    assert not ctypes.CDLL(None).prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, program, 0, 0)


@pytest.fixture(scope="session")
def world(loop: asyncio.AbstractEventLoop) -> Iterator[World]:
    if Path("/proc/sys/net/ipv6/conf").exists():
        if platform.machine() not in SOCKET_CALL:
            pytest.skip("the number of socket(2) is not known for this machine")
        lose_ipv6(SOCKET_CALL[platform.machine()])
    made = World(versions=(4,))
    made.build()
    loop.run_until_complete(made.serve())
    loop.run_until_complete(made.settle())
    yield made
    loop.run_until_complete(made.close())


@pytest.mark.usefixtures("world")
def test_the_kernel_is_without() -> None:
    with pytest.raises(OSError, match="not supported"):
        socket.socket(socket.AF_INET6)


@pytest.mark.parametrize("mode", ["nftables", "userspace"])
def test_a_service_is_served_and_followed(world: World, loop: asyncio.AbstractEventLoop, mode: str) -> None:
    async def ends(protocol: str) -> set[str]:
        asked = [world.probe(CLIENTS[who][0], to, protocol, port, PATIENCE_S) for who, to, port in FRONTS]
        return {answer.backend or answer.error for answer in [await each for each in asked]}

    async def serve() -> list[set[str]]:
        known = state(service(1, endpoints(1, "p1")))
        relays, kernel = UserspaceProxier(NftablesProxier()), NftablesProxier()
        known.synced |= {Service, EndpointSlice}
        proxier: Proxier = kernel if mode == "nftables" else relays
        flows = ConntrackReconciler(kernel.udp_targets if mode == "nftables" else relays.udp_targets)
        config = CONFIG if mode == "nftables" else replace(CONFIG, mode=USERSPACE)
        dataplane = SyncRunner(known, proxier, lambda: (NODE_VIEW, config), SyncTiming(min_sync_s=0.0))
        applied = asyncio.Event()
        dataplane.subscribers += [flows.synced, lambda _: applied.set()]
        tasks = [asyncio.create_task(dataplane.run()), asyncio.create_task(flows.run())]
        found = []
        for end in ("p1", "r1"):
            dataplane.changed([change for endpoint in endpoints(1, end) if (change := known.upsert(endpoint))])
            await applied.wait()
            applied.clear()
            world.forget()
            found += [await ends("TCP"), await ends("UDP")]
        assert not dataplane.stats.failures
        assert not relays.missing
        assert not tasks[1].done()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await relays.close()
        await clean_up()
        return found

    p1, r1 = {ENDPOINTS["p1"][0]}, {ENDPOINTS["r1"][0]}
    assert loop.run_until_complete(serve()) == [p1, p1, r1, r1]
