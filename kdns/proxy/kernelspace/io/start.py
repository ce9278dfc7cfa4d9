"""Starts mode kernelspace, and says why it cannot work here."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from typing import Final

from kdns.errors import ApplyError
from kdns.proxy.kernelspace.io.compute_network import ComputeNetwork
from kdns.proxy.kernelspace.io.libraries import host_mac, libraries, lock_machine
from kdns.proxy.kernelspace.io.proxier import KernelspaceProxier
from kdns.proxy.kernelspace.mode import MODE
from kdns.proxy.kernelspace.settings import KernelspaceSettings, windows_network
from kdns.proxy.settings.settings import Settings
from kdns.proxy.sync.io.proxier import Runtime

MINIMUM: Final = (12, 0)
"""The first version with DSR, dual stack and session affinity (hcsshim, hcn/hcnglobals.go)."""
NETWORK_VARIABLE: Final = "KUBE_NETWORK"


async def unsupported(settings: Settings) -> str:
    try:
        return await asyncio.to_thread(_unsupported, ComputeNetwork(libraries()), settings)
    except ApplyError as error:
        return error.stderr


def _unsupported(service: ComputeNetwork, settings: Settings) -> str:
    version = service.version()
    if version < MINIMUM:
        found, wanted = (".".join(map(str, numbers)) for numbers in (version, MINIMUM))
        return f"version {found} of the host network service; expected {wanted} or later, as of Windows Server 2022"
    if not network_name(settings):
        return f"the network is not known; expected winkernel.networkName, --network-name or ${NETWORK_VARIABLE}"
    return ""


def network_name(settings: Settings) -> str:
    """Empty if the Pods' network is not known."""
    return settings.section(KernelspaceSettings).network_name or os.environ.get(NETWORK_VARIABLE, "")


async def start(settings: Settings) -> KernelspaceProxier:
    """KdnsError if another process of kdns is at work.

    The network need not exist yet: the CNI plugin may create it later, and syncs fail until then.
    """
    lock_machine()
    network = replace(windows_network(settings), name=network_name(settings))
    return KernelspaceProxier(ComputeNetwork(libraries()), network, host_mac)


RUNTIME: Final = Runtime(MODE, unsupported, start)
