"""Debian's own kernel as a plain process: qemu without hardware's help, with this machine's files as its root, to read.

The kernel counts its time in instructions while it is busy (-icount), so a slow machine makes nothing in it time out.
"""

import platform
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Final

import machine

KERNEL: Final = machine.ROOT / ".kernel"
QEMU: Final = "qemu-system-x86_64"
MEMORY: Final = "512M"

_PROGRAMS: Final = ("sh", "mount", "insmod", "switch_root")
_MODULES: Final = ("virtio_pci", "9pnet_virtio", "9p")
_QUICK: Final = "tsc=reliable cryptomgr.notests rodata=off"
"""No calibration of the clock, no self-tests of ciphers, no search for writable code: seconds when emulated."""
_FOLDER, _PROGRAM = 0o40755, 0o100755


def missing() -> str:
    """Why there is no other kernel here, "" if there is one."""
    if platform.machine() != "x86_64":
        return "the other kernel is Debian's for amd64"
    if not (KERNEL / "vmlinux").exists():
        return "no kernel in .kernel: tests/kernel/unpack-debian-kernel says why"
    return machine.absent(QEMU, "modprobe", "ip", "nft", *_PROGRAMS)


def run(command: list[str], folder: Path, *, options: str = "", timeout_s: float) -> machine.Ended:
    """Boot, run the command, turn off; `options` are the kernel's. `folder` is for what comes and goes."""
    said, initial = machine.exchange(command, folder), folder / "initrd"
    mounted = ("9p", "trans=virtio,version=9p2000.L,cache=none")
    initial.write_bytes(_initial_files([str(machine.START), str(KERNEL / "lib" / "modules"), *mounted]))
    argv = [
        *f"{QEMU} -machine q35 -accel tcg -icount shift=1 -m {MEMORY} -nodefaults -no-user-config".split(),
        *("-display", "none", "-no-reboot", "-serial", f"file:{folder}/console"),
        *("-fsdev", "local,id=root,path=/,security_model=none,readonly=on,multidevs=remap"),
        *("-device", "virtio-9p-pci,fsdev=root,mount_tag=root"),
        *("-fsdev", f"local,id=said,path={said},security_model=none"),
        *("-device", "virtio-9p-pci,fsdev=said,mount_tag=said"),
        *("-kernel", str(KERNEL / "vmlinux"), "-initrd", str(initial)),
        *("-append", f"console=ttyS0 panic=-1 quiet mitigations=off {_QUICK} {options}"),
    ]
    return machine.ended(argv, folder, timeout_s)


def _version() -> str:
    return (KERNEL / "version").read_text().strip()


def _initial_files(command: list[str]) -> bytes:
    """The first files of the kernel (cpio, newc): enough to reach this machine's files and go on there."""
    files: dict[str, bytes] = {}
    for name in _PROGRAMS:
        path = Path(shutil.which(name, path=machine.SEARCHED) or name)
        files[f"bin/{name}"] = path.read_bytes()
        linked = subprocess.run(["ldd", path], capture_output=True, text=True, check=True).stdout
        files |= {each.lstrip("/"): Path(each).read_bytes() for each in re.findall(r"/\S+", linked)}
    modules = [path for name in _MODULES for path in _with_needed(name)]
    files |= {f"modules/{path.name}": path.read_bytes() for path in modules}
    inserted = "\n".join(f"insmod /modules/{name}" for name in dict.fromkeys(path.name for path in modules))
    init = f"""#!/bin/sh
export PATH=/bin
{inserted}
mount -t 9p -o ro,trans=virtio,version=9p2000.L,cache=loose,msize=262144 root /root
exec switch_root /root /bin/sh {shlex.join(command)}
"""
    return _archive({**files, "init": init.encode()}, folders=("root", "proc", "sys", "dev", "run"))


def _with_needed(module: str) -> list[Path]:
    """The module behind those that it needs."""
    command = ["modprobe", "--dirname", str(KERNEL), "--set-version", _version(), "--show-depends", module]
    env = {"PATH": machine.SEARCHED}
    shown = subprocess.run(command, capture_output=True, text=True, check=True, env=env).stdout
    return [Path(line.split()[1]) for line in shown.splitlines() if line.startswith("insmod")]


def _archive(files: dict[str, bytes], folders: tuple[str, ...]) -> bytes:
    above = {str(folder) for name in files for folder in Path(name).parents} - {"."}
    entries = [(name, _FOLDER, b"") for name in sorted({*above, *folders})]
    entries += [(name, _PROGRAM, content) for name, content in files.items()]
    made = bytearray()
    for number, (name, mode, content) in enumerate([*entries, ("TRAILER!!!", 0, b"")], 1):
        numbers = (number, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name) + 1, 0)
        made += b"070701" + b"".join(b"%08x" % each for each in numbers) + name.encode() + b"\0"
        made += bytes(-len(made) % 4) + content
        made += bytes(-len(made) % 4)
    return bytes(made)
