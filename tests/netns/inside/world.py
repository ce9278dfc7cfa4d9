"""A small network in the kernel: the node (this process's namespace), its Pods, another node's Pods, and the outside.

    pod1, pod2    10.1.0.2, 10.1.0.3       fd00:1::2, fd00:1::3              Pods of this node
    remote        10.1.1.2, 10.1.1.3       fd00:1:1::2, fd00:1:1::3          Pods of another node, in one namespace
    outside       192.0.2.100, 203.0.113.5 2001:db8:2::100, 2001:db8:2::101  clients
    node          192.0.2.1, 192.0.2.9     2001:db8:2::1, 2001:db8:2::9      this node

Every path leads through the node. Its end of each link is called like the space, but that pod2 is behind a bridge,
"pods". Each Pod answers on PORTS, in the world's protocols, with its own address and port and those that it sees the
client under; so does the node on its first addresses.
"""

import asyncio
import ctypes
import errno
import os
import socket
import struct
import subprocess
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Final, TypeVar, cast

T = TypeVar("T")

PORTS: Final = (8080, 8443)
TIMEOUT_S: Final = float(os.environ.get("PROBE_TIMEOUT_S", "0.5"))
"""How long a probe waits at most until it counts as dropped. Machines that are slow by their nature ask for more."""
GRACE_S: Final = 0.1
"""How long it waits beyond the answer to a hello that a Pod was told after it: this machine answers as fast now."""
KINDS: Final = {
    "TCP": (socket.SOCK_STREAM, 0),
    "UDP": (socket.SOCK_DGRAM, 0),
    "SCTP": (socket.SOCK_STREAM, socket.IPPROTO_SCTP),
}
"""Protocol → kind and protocol of its sockets."""
PODS: Final = {
    "pod1": ("10.1.0.2", "fd00:1::2"),
    "pod2": ("10.1.0.3", "fd00:1::3"),
    "remote": ("10.1.1.2", "10.1.1.3", "fd00:1:1::2", "fd00:1:1::3"),
}
OUTSIDE: Final = ("192.0.2.100", "203.0.113.5", "2001:db8:2::100", "2001:db8:2::101")
NODE: Final = ("192.0.2.1", "192.0.2.9", "2001:db8:2::1", "2001:db8:2::9")
BRIDGES: Final = {"pod2": "pods"}
SPACE_OF: Final = {
    address: space for space, addresses in (*PODS.items(), ("outside", OUTSIDE)) for address in addresses
}
"""Namespace → its addresses, turned around; the node's own are not in it."""
VERSIONS: Final = (4, 6)
_LENGTHS: Final = {4: "/32", 6: "/64 nodad"}

SYSCTLS: Final = (
    "ipv4.ip_forward=1",
    "ipv6.conf.all.forwarding=1",
    "ipv4.conf.all.rp_filter=0",
    "ipv4.conf.all.send_redirects=0",
    "ipv4.icmp_ratelimit=0",  # every refused packet is told, however many there are
    "ipv6.icmp.ratelimit=0",
)
OF_FIRST_NAMESPACE: Final = ("ipv4.icmp_msgs_per_sec=100000", "ipv4.icmp_msgs_burst=100000")
"""The same; older kernels have these in the first network namespace only, where tests/kernel/start sets them."""

SCTP_SYSCTLS: Final = ("sctp.rto_min=50", "sctp.rto_initial=100")
"""Milliseconds until SCTP asks again, that is until it hears once more of a refusal that it was too busy to hear."""

_CLONE_NEWNET: Final = 0x40000000
_NETLINK_NETFILTER: Final = 12
_DELETE_ALL_CONNECTIONS: Final = struct.pack("=IHHIIBBH", 20, 0x0102, 0x5, 0, 0, 0, 0, 0)
"""IPCTNL_MSG_CT_DELETE (linux/netfilter/nfnetlink_conntrack.h) with acknowledgement, of no connection in particular."""
_LIBC: Final = ctypes.CDLL(None, use_errno=True)
_TOLD4, _TOLD6 = (socket.IPPROTO_IP, 11), (socket.IPPROTO_IPV6, 25)  # IP_RECVERR and IPV6_RECVERR
_SCM_REFUSED: Final = {errno.ECONNREFUSED}
_DROPPED: Final = {errno.EPERM, errno.ETIMEDOUT}


@dataclass(frozen=True, slots=True)
class Answer:
    """How a probe ended: `backend` is who answered and `seen` the source it saw, else `error` is a word.

    `is_masqueraded`: it saw another address than the client's, or another port if the client was the node, which
    may be masqueraded as the address that it has anyway.
    """

    backend: str = ""
    port: int = 0
    seen: str = ""
    error: str = ""
    is_masqueraded: bool = False

    def fits(self, source: str, *, masqueraded: bool) -> bool:
        """Whether it saw what it should.

        The kernel may also change a port because the client's was in use, and leave it where the node is masqueraded
        as itself to itself.
        """
        return self.is_masqueraded == masqueraded or (source in NODE and (not masqueraded or self.backend in NODE))


@dataclass(slots=True)
class World:
    """The namespaces, by name; `node` is the process's own. `versions` are the IP versions that the kernel has."""

    protocols: Sequence[str] = ("TCP", "UDP")
    versions: Sequence[int] = VERSIONS
    names: dict[str, str] = field(default_factory=dict)
    _threads: dict[str, ThreadPoolExecutor] = field(default_factory=dict)
    _servers: list[asyncio.Server] = field(default_factory=list)
    _datagrams: list[socket.socket] = field(default_factory=list)
    _later: asyncio.Task[Answer] | None = None

    def build(self) -> None:
        for setting in (*SYSCTLS, *OF_FIRST_NAMESPACE):
            if 6 in self.versions or not setting.startswith("ipv6"):
                _sysctl(setting)
        self._tune_sctp()
        links = ["link set lo up", *(f"address add {_alone(address)} dev lo" for address in self._ours(NODE))]
        routes: list[str] = []
        inside: dict[str, list[str]] = {}
        for number, space in enumerate((*PODS, "outside"), 1):
            self.names[space] = f"kdns-{os.getpid()}-{space}"
            addresses = self._ours(_addresses(space))
            gateways = f"169.254.{number}.1", f"fe80::{number}"
            ends = f"169.254.{number}.2", f"fe80::{number}:2"
            link = BRIDGES.get(space, space)
            links += self._links(space, link, [*zip(VERSIONS, gateways, strict=True)])
            inside[self.names[space]] = self._inside(addresses, [*zip(VERSIONS, gateways, ends, strict=True)])
            for address in addresses:
                way = f"via {ends[1]} dev {link}" if ":" in address else f"via {ends[0]} dev {link} onlink"
                routes.append(f"route replace {address} {way}")
                if space == "outside":  # what is nobody's goes out, as on any node, and is lost there
                    routes.append(f"route replace default {way}")
        _ip(links)
        for name, commands in inside.items():
            _ip(commands, name)
        _ip(routes)
        self._threads = {space: ThreadPoolExecutor(1, name, _enter, (name,)) for space, name in self.names.items()}
        if "SCTP" in self.protocols:
            for space in self.names:
                self.inside(space, self._tune_sctp)

    def _links(self, space: str, link: str, gateways: Sequence[tuple[int, str]]) -> Iterator[str]:
        """The node's end, which is behind a bridge where its name is not the space's."""
        yield f"netns add {self.names[space]}"
        yield f"link add {space} type veth peer name eth0 netns {self.names[space]}"
        yield self._up(space)
        if link != space:
            yield f"link add {link} type bridge"
            yield self._up(link)
            yield f"link set {space} master {link}"
            yield f"link set {space} type bridge_slave hairpin on"  # as a kubelet does: a Pod may reach itself
        for version, gateway in gateways:
            if version in self.versions:
                yield f"address add {gateway}{_LENGTHS[version]} dev {link}"

    def _inside(self, addresses: Sequence[str], ends: Sequence[tuple[int, str, str]]) -> list[str]:
        commands = [
            "link set lo up",
            self._up("eth0"),
            *(f"address add {_alone(address)} dev lo" for address in addresses),
        ]
        for version, gateway, own in ends:
            if version in self.versions:
                first = next(address for address in addresses if (":" in address) == (version == 6))
                commands.append(f"address add {own}{_LENGTHS[version]} dev eth0")
                if version == 4:
                    commands.append(f"route add {gateway} dev eth0 scope link")
                commands.append(f"route add default via {gateway} dev eth0 src {first}")
        return commands

    async def serve(self) -> None:
        loop = asyncio.get_running_loop()
        for space, addresses in (*PODS.items(), ("node", (NODE[0], NODE[2]))):
            for address, port, protocol in product(self._ours(addresses), PORTS, self.protocols):
                kind, number = KINDS[protocol]
                made = self.socket(space, address, kind, port, number)
                if kind == socket.SOCK_STREAM:
                    made.listen(256)
                    self._servers.append(await loop.create_server(_Answers, sock=made))
                else:
                    loop.add_reader(made, _answer_datagram, made)
                    self._datagrams.append(made)

    async def close(self) -> None:
        """Let nobody answer any more. The namespaces go with the process's mounts."""
        if self._later:
            await self._later
        for server in self._servers:
            server.close()
        for datagrams in self._datagrams:
            asyncio.get_running_loop().remove_reader(datagrams)
            datagrams.close()
        for thread in self._threads.values():
            thread.shutdown()

    async def settle(self) -> None:
        """Use every path once, so that neighbours know each other and no first packet is lost."""
        for source in self._ours((*SPACE_OF, *NODE)):
            for target in SPACE_OF:
                if target in OUTSIDE or (":" in source) != (":" in target):
                    continue
                for _ in range(20):
                    if not (await self.probe(source, target, "TCP", PORTS[0])).error:
                        break
                else:
                    raise RuntimeError(f"no way from {source} to {target}")

    def forget(self) -> None:
        """Forget the node's connections: a client that gets the port of one before must not be taken for it."""
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_NETFILTER) as conntrack:
            conntrack.send(_DELETE_ALL_CONNECTIONS)
            conntrack.recv(100)

    def socket(self, space: str, address: str, kind: int, port: int = 0, protocol: int = 0) -> socket.socket:
        def make() -> socket.socket:
            family = socket.AF_INET6 if ":" in address else socket.AF_INET
            made = socket.socket(family, kind, protocol)
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            made.setblocking(False)
            made.bind((address, port))
            return made

        return make() if space == "node" else self.inside(space, make)

    def inside(self, space: str, call: Callable[[], T]) -> T:
        """What `call` returns in another namespace, where a thread of its own stays.

        The main thread stays in the node's, since /proc/net and /proc/self are its own in all other threads.
        """
        return self._threads[space].submit(call).result()

    async def probe(
        self, source: str, destination: str, protocol: str, port: int, patience_s: float | None = None
    ) -> Answer:
        """Say hello from one address to another and return what comes of it.

        An answer that has to come is waited for as long as `patience_s`, one that may not come is not: see GRACE_S.
        """
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(patience_s or TIMEOUT_S) as limit:
                doubt = loop.call_later(GRACE_S, self._doubt, limit) if patience_s is None else None
                try:
                    return await self._said(source, destination, protocol, port)
                finally:
                    if doubt:
                        doubt.cancel()
        except TimeoutError:
            return Answer(error="dropped")

    def _doubt(self, limit: asyncio.Timeout) -> None:
        """Ask a Pod now, and wait no longer than GRACE_S beyond its answer."""
        loop = asyncio.get_running_loop()

        def answered(later: asyncio.Task[Answer]) -> None:
            end_s = loop.time() + GRACE_S
            if not later.cancelled() and later.result().backend and end_s < (limit.when() or 0):
                with suppress(RuntimeError):  # it is over already
                    limit.reschedule(end_s)

        if self._later is None or self._later.done():
            self._later = loop.create_task(self.probe(NODE[0], PODS["pod1"][0], "TCP", PORTS[0], TIMEOUT_S))
        self._later.add_done_callback(answered)

    async def _said(self, source: str, destination: str, protocol: str, port: int) -> Answer:
        space = SPACE_OF.get(source, "node")
        kind, number = KINDS[protocol]
        client = self.socket(space, source, kind, protocol=number)
        if protocol == "SCTP":  # which does not tell of refusals by itself
            client.setsockopt(*(_TOLD6 if ":" in source else _TOLD4), 1)
        loop = asyncio.get_running_loop()
        try:
            await loop.sock_connect(client, (destination, port))
            await loop.sock_sendall(client, b"hello")
            said = (await loop.sock_recv(client, 200)).decode()
            own_port = client.getsockname()[1]
        except OSError as error:
            if error.errno in _SCM_REFUSED:
                return Answer(error="rejected")
            return Answer(error="dropped" if error.errno in _DROPPED else os.strerror(error.errno or 0))
        finally:
            client.close()
        backend, port_there, seen, seen_port = said.split()
        is_masqueraded = seen != source or (source in NODE and int(seen_port) != own_port)
        return Answer(backend, int(port_there), seen, is_masqueraded=is_masqueraded)

    def _ours(self, addresses: Sequence[str]) -> list[str]:
        return [address for address in addresses if (6 if ":" in address else 4) in self.versions]

    def _up(self, link: str) -> str:
        return f"link set {link} up{' addrgenmode none' if 6 in self.versions else ''}"

    def _tune_sctp(self) -> None:
        if "SCTP" in self.protocols:
            socket.socket(socket.AF_INET, *KINDS["SCTP"]).close()  # so that the kernel has its module
            for setting in SCTP_SYSCTLS:
                _sysctl(setting)


def _addresses(space: str) -> Sequence[str]:
    return OUTSIDE if space == "outside" else PODS[space]


class _Answers(asyncio.Protocol):
    """Answers the first data of a connection, and ends it."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, _data: bytes) -> None:
        own, peer = self._transport.get_extra_info("sockname"), self._transport.get_extra_info("peername")
        self._transport.write(f"{own[0]} {own[1]} {peer[0]} {peer[1]}".encode())
        self._transport.close()


def _answer_datagram(server: socket.socket) -> None:
    try:
        _, peer = server.recvfrom(100)
        own = server.getsockname()
        server.sendto(f"{own[0]} {own[1]} {peer[0]} {peer[1]}".encode(), peer)
    except OSError:  # a client that is gone already
        return


def _enter(name: str) -> None:
    with Path("/run/netns", name).open("rb") as namespace:
        if _LIBC.setns(namespace.fileno(), _CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "setns")


def _alone(address: str) -> str:
    """The address with its length; one of IPv6 is used before the kernel comes to look whether others have it."""
    return f"{address}/128 nodad" if ":" in address else f"{address}/32"


def _ip(commands: Sequence[str], space: str = "") -> None:
    """Carry out ip's commands, in a namespace or in this one, all in one process."""
    argv = ["ip", *(("-n", space) if space else ()), "-batch", "-"]
    done = subprocess.run(argv, input="\n".join(commands), capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{argv}: {done.stderr}\n{commands}")


def _sysctl(setting: str) -> None:
    name, _, value = setting.partition("=")
    path = Path("/proc/sys/net", *name.split("."))
    if setting not in OF_FIRST_NAMESPACE or path.exists():
        path.write_text(value)
