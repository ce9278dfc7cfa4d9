"""The libraries of Windows that the mode calls. They are loaded on Windows only."""

from __future__ import annotations

import ctypes
import socket
import sys
from functools import cache
from typing import Final

from kdns.errors import ApplyError, KdnsError
from kdns.proxy.kernelspace.io.compute_network import SIGNATURES, Libraries

OLDER: Final = "HNSCall"
"""The one function of vmcompute.dll."""
_MUTEX: Final = "Global\\kdns-kernelspace"
_ALREADY_EXISTS: Final = 183
_MAC_BYTES: Final = 6
_ELSEWHERE: Final = f"mode kernelspace needs Windows, and this machine runs {sys.platform}"


@cache
def libraries() -> Libraries:
    """ApplyError on other systems, and where a library is missing."""
    if sys.platform == "win32":
        functions = {}
        for name, parameters in SIGNATURES.items():
            try:
                library = ctypes.WinDLL("vmcompute.dll" if name == OLDER else "computenetwork.dll")
                function = getattr(library, name)
            except (OSError, AttributeError) as error:
                reason = f"{error}; expected Windows Server 2022 with the feature Containers"
                raise ApplyError((name,), reason) from error
            function.argtypes, function.restype = parameters, ctypes.c_int32
            functions[name] = function
        free = ctypes.WinDLL("ole32.dll").CoTaskMemFree
        free.argtypes, free.restype = (ctypes.c_void_p,), None
        return {**functions, "CoTaskMemFree": free}
    raise ApplyError(("computenetwork.dll",), _ELSEWHERE)


@cache
def lock_machine() -> None:
    """Makes this process the only one of kdns until it ends. Raises KdnsError if another process is at work."""
    if sys.platform == "win32":
        kernel = ctypes.WinDLL("kernel32.dll", use_last_error=True)
        kernel.CreateMutexW.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_wchar_p)
        kernel.CreateMutexW.restype = ctypes.c_void_p
        if not kernel.CreateMutexW(None, 0, _MUTEX) or ctypes.get_last_error() == _ALREADY_EXISTS:
            raise KdnsError("another process of kdns serves this machine already; stop it first")


def host_mac(address: str) -> str:
    """The MAC address of the interface that has this IPv4 address, as SendARP reports it.

    Raises ApplyError if no interface has it.
    """
    if sys.platform == "win32":
        mac, length = (ctypes.c_ubyte * 8)(), ctypes.c_ulong(8)
        number = ctypes.c_ulong(int.from_bytes(socket.inet_aton(address), "little"))
        code = ctypes.WinDLL("iphlpapi.dll").SendARP(number, 0, ctypes.byref(mac), ctypes.byref(length))
        if code or length.value < _MAC_BYTES:
            raise ApplyError(("SendARP",), f"no interface has {address} (error {code}); expected the node's address")
        return "-".join(f"{octet:02x}" for octet in mac[:_MAC_BYTES])
    raise ApplyError(("SendARP",), _ELSEWHERE)
