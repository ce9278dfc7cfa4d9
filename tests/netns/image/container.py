"""Starts a program as a container runtime does: as this user, with these capabilities, in this network namespace.

usage: container.py UID GID NO_NEW_PRIVS CAPABILITIES PROGRAM ARGUMENT …

The order is runc's: bounding set, user, then the permitted and effective set, no new privileges, execve. What the
process may after execve is the kernel's decision: with no new privileges, a file capability gives only what was
permitted before.
"""

import ctypes
import os
import sys
from pathlib import Path
from typing import Final

NUMBERS: Final = {"NET_BIND_SERVICE": 10, "NET_ADMIN": 12}
"""linux/capability.h."""
PR_SET_KEEPCAPS, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 8, 24, 38
CAPABILITY_VERSION_3: Final = 0x20080522

libc = ctypes.CDLL(None, use_errno=True)


def main(uid: str, gid: str, no_new_privs: str, names: str, *command: str) -> None:
    capabilities = [NUMBERS[name] for name in names.split(",") if name]
    for number in range(_last_capability() + 1):
        if number not in capabilities:
            _check(libc.prctl(PR_CAPBSET_DROP, number, 0, 0, 0))
    _check(libc.prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0))
    os.setgroups([])
    os.setgid(int(gid))
    os.setuid(int(uid))
    _check(libc.prctl(PR_SET_KEEPCAPS, 0, 0, 0, 0))
    mask = sum(1 << number for number in capabilities)
    header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION_3, 0)
    _check(libc.capset(header, (ctypes.c_uint32 * 6)(mask, mask, 0, 0, 0, 0)))  # effective, permitted, inheritable
    if no_new_privs == "yes":
        _check(libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    os.execvp(command[0], command)  # noqa: S606 - it is what this program is for


def _last_capability() -> int:
    return int(Path("/proc/sys/kernel/cap_last_cap").read_text(encoding="ascii"))


def _check(result: int) -> None:
    if result:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


if __name__ == "__main__":
    main(*sys.argv[1:])
