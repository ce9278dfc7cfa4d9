"""How this machine's own resolver is made to query kdns: docs/laptop.md in two lines, for the resolver that is here."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from kdns.net import join_host_port

PAGE: Final = "docs/laptop.md"
_SERVER: Final = "server=/{domain}/{host}#{port}"
RECIPES: Final = {
    "run/systemd/resolve": ("DNS={at}, Domains=~{domain}", "etc/systemd/resolved.conf.d/kdns.conf", "systemd-resolved"),
    "etc/dnsmasq.d": (_SERVER, "etc/dnsmasq.d/kdns.conf", "dnsmasq"),
    "etc/NetworkManager": (_SERVER, "etc/NetworkManager/dnsmasq.d/kdns.conf", "NetworkManager"),
    "etc/resolver": ("nameserver {host}, port {port}", "etc/resolver/{domain}", ""),
}
"""The folder of a resolver → the text to write, its file, and the service that reads it at its start."""


def recipe(host: str, port: int, domain: str, root: Path = Path("/")) -> tuple[str, ...]:
    """Returns the instructions that lead this machine's programs to the cluster's names; nothing if the file exists."""
    values = {"host": host, "port": port, "domain": domain, "at": join_host_port(host, port)}
    for folder, (content, file, service) in RECIPES.items():
        if not (root / folder).exists() or (service == "NetworkManager" and not _has_dnsmasq(root / folder)):
            continue
        path = root / file.format(**values)
        then = f"then sudo systemctl restart {service}: " if service else "see "
        return () if path.exists() else (f"{content.format(**values)} in {path},", f"{then}{PAGE}")
    return (f"for programs of this machine: {PAGE}",)


def _has_dnsmasq(folder: Path) -> bool:
    """Returns whether NetworkManager runs a dnsmasq of its own."""
    for path in (folder / "NetworkManager.conf", *folder.glob("conf.d/*.conf")):
        try:
            lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            continue
        if any(line.replace(" ", "") == "dns=dnsmasq" for line in lines):
            return True
    return False
