"""User-mode Linux, a kernel that is a plain process: with IPVS, and with this machine's files as its root, to read.

Debian's package user-mode-linux. The kernel and all that it starts are in a process namespace, which ends with its
first process, and in a mount namespace in which nothing but `folder` can be written: whatever the kernel does, the
machine's files stay as they are. It has one processor, no nftables for IP, and iptables-legacy.
"""

import os
import subprocess
from pathlib import Path
from typing import Final

import machine

PROGRAM: Final = "linux.uml"
MODULES: Final = Path("/usr/lib/uml/modules")
MEMORY: Final = "512M"

_LARGE_REGISTERS: Final = Path(__file__).with_name("large-registers.c")
_APART: Final = ("unshare", "--mount", "--pid", "--fork", "--kill-child")
_GUARD: Final = """
mount --bind "$0" "$0" && mount -o remount,bind,ro / && mount -t tmpfs tmpfs "$0/memory" || exit
export TMPDIR="$0/memory"
"$@"
"""
"""Its memory is a file, which is fast where it is in memory itself."""


def missing() -> str:
    """Why there is no such kernel here, "" if there is one."""
    if not MODULES.is_dir():
        return f"{MODULES} is missing: Debian's package user-mode-linux has it, for amd64 and i386"
    if reason := machine.absent(PROGRAM, "unshare", "modprobe", "ip", *(("cc",) if _has_large_registers() else ())):
        return reason
    tried = subprocess.run([*_apart(), "true"], capture_output=True, text=True, check=False)
    return f"it is run in namespaces, and they cannot be made: {tried.stderr.strip()}" if tried.returncode else ""


def run(command: list[str], folder: Path, *, options: str = "", timeout_s: float) -> machine.Ended:
    """Boot, run the command, turn off; `options` are the kernel's. `folder` is for what comes and goes."""
    said = machine.exchange(command, folder)
    (folder / "memory").mkdir()
    (folder / "control").mkdir()
    library = folder / "large-registers.so"
    if _has_large_registers():
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(_LARGE_REGISTERS)], check=True)
    argv = [
        *(*_apart(), "sh", "-c", _GUARD, str(folder)),
        *(("env", f"LD_PRELOAD={library}") if library.exists() else ()),
        *(PROGRAM, f"mem={MEMORY}", "umid=kdns", f"uml_dir={folder}/control/"),
        *("root=/dev/root", "rootfstype=hostfs", "ro", "con=null", "con0=null,fd:1", "quiet", *options.split()),
        *(f"init={machine.START}", "--", str(MODULES), "hostfs", str(said)),
    ]
    return machine.ended(argv, folder, timeout_s)


def _has_large_registers() -> bool:
    """Whether the processor has more registers than this kernel can restore without help."""
    return "amx_tile" in Path("/proc/cpuinfo").read_text().split()


def _apart() -> tuple[str, ...]:
    return _APART if os.geteuid() == 0 else (*_APART, "--map-root-user")
