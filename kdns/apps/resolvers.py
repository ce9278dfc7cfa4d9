"""Configurations that point this machine's resolver at kdns: `kdns laptop`, and docs/laptop.md by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kdns.corefile.address import reverse_zones
from kdns.net import HostPort, Network

PAGE: Final = "docs/laptop.md"
MARK: Final = "# Written by `kdns laptop on`, removed by `kdns laptop off`."
RESOLV_CONF: Final = Path("/etc/resolv.conf")
SYSTEMD_RESOLV_CONF: Final = Path("/run/systemd/resolve/resolv.conf")
SYSTEMD_STUB: Final = "127.0.0.53"
DEFAULT_DNS: Final = HostPort("127.0.0.1", 1053)


@dataclass(frozen=True, slots=True)
class ClusterNames:
    """The names for which a resolver queries kdns. Addresses of 127.0.0.0/8 have names of the machine's own."""

    dns: HostPort
    domain: str
    networks: tuple[Network, ...]

    @property
    def zones(self) -> tuple[str, ...]:
        reverse = (zone.removesuffix(".") for network in self._outside for zone in reverse_zones(network))
        return (self.domain, *reverse)

    @property
    def _outside(self) -> Iterator[Network]:
        return (network for network in self.networks if not network.is_loopback)

    def for_systemd(self) -> Iterator[str]:
        """A drop-in of systemd-resolved, 246 or later."""
        yield "[Resolve]"
        yield f"DNS={self.dns}"
        yield f"Domains={' '.join(f'~{zone}' for zone in self.zones)}"

    def for_dnsmasq(self) -> Iterator[str]:
        """The last line allows private addresses where dnsmasq drops them otherwise."""
        for zone in self.zones:
            yield f"server=/{zone}/{self.dns.host}#{self.dns.port}"
        yield f"rebind-domain-ok=/{self.domain}/"


@dataclass(frozen=True, slots=True)
class LocalResolver:
    """A program that resolves names, recognized by its `folder`; the unit `service` reads `file` at its start."""

    folder: str
    file: str
    service: str
    lines: Callable[[ClusterNames], Iterable[str]]

    def content(self, names: ClusterNames) -> str:
        return "\n".join((MARK, *self.lines(names), ""))


RESOLVERS: Final = (
    LocalResolver(
        "run/systemd/resolve", "etc/systemd/resolved.conf.d/kdns.conf", "systemd-resolved", ClusterNames.for_systemd
    ),
    LocalResolver("etc/dnsmasq.d", "etc/dnsmasq.d/kdns.conf", "dnsmasq", ClusterNames.for_dnsmasq),
    LocalResolver(
        "etc/NetworkManager", "etc/NetworkManager/dnsmasq.d/kdns.conf", "NetworkManager", ClusterNames.for_dnsmasq
    ),
)


def resolver_of(root: Path) -> LocalResolver | None:
    """The resolver of the machine with these files; None for an unknown one."""
    for resolver in RESOLVERS:
        folder = root / resolver.folder
        if folder.exists() and (resolver.service != "NetworkManager" or _has_dnsmasq(folder)):
            return resolver
    return None


def recipe(dns: HostPort, domain: str, root: Path = Path("/"), *, program: str = "kdns") -> tuple[str, ...]:
    """The command that points this machine's resolver at kdns; empty if its file exists."""
    resolver = resolver_of(root)
    if resolver is None:
        return (f"for programs of this machine: {PAGE}",)
    if (root / resolver.file).exists():
        return ()
    words = [f"sudo {program} laptop on"]
    words += [f"--dns {dns}"] if dns != DEFAULT_DNS else []
    words += [f"--cluster-domain {domain}"] if domain != "cluster.local" else []
    return (f"{' '.join(words)}: {PAGE}",)


def _has_dnsmasq(folder: Path) -> bool:
    """NetworkManager runs a dnsmasq of its own."""
    for path in (folder / "NetworkManager.conf", *folder.glob("conf.d/*.conf")):
        try:
            lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            continue
        if any(line.replace(" ", "") == "dns=dnsmasq" for line in lines):
            return True
    return False


def machine_resolv_conf() -> Path | None:
    """The file with the upstreams of systemd-resolved if that is the resolver, since it may query kdns itself."""
    resolvers = _nameservers(RESOLV_CONF)
    if resolvers == [SYSTEMD_STUB]:
        return SYSTEMD_RESOLV_CONF if _nameservers(SYSTEMD_RESOLV_CONF) else None
    return RESOLV_CONF if resolvers else None


def _nameservers(file: Path) -> list[str]:
    from kdns.plugins.sources.forward.targets import resolv_conf  # noqa: PLC0415 - late, as the DNS server

    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return []
    return [target.host for target in resolv_conf(text).targets]
