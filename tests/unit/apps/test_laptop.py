"""`kdns laptop` on machines with one resolver or another: what is written, what comes back, what is left alone."""

import re
from dataclasses import dataclass
from ipaddress import ip_network
from pathlib import Path

import pytest

from kdns.apps import laptop
from kdns.apps.resolvers import MARK, PAGE, ClusterNames
from kdns.errors import ApplyError, InputError
from kdns.net import HostPort
from kdns.runtime.subprocesses import Completed

NAMES = ClusterNames(
    HostPort("127.0.0.1", 1053),
    "cluster.local",
    tuple(map(ip_network, ("10.96.0.0/16", "fd00:10:96::/112", "127.96.0.0/16"))),
)
REVERSE = "96.10.in-addr.arpa", "0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.6.9.0.0.0.1.0.0.0.0.d.f.ip6.arpa"
MACHINES = {
    "systemd-resolved": ("run/systemd/resolve/x", "etc/systemd/resolved.conf.d/kdns.conf"),
    "dnsmasq": ("etc/dnsmasq.d/x", "etc/dnsmasq.d/kdns.conf"),
    "NetworkManager": ("etc/NetworkManager/conf.d/x.conf", "etc/NetworkManager/dnsmasq.d/kdns.conf"),
}


@pytest.fixture
def restarted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    services: list[str] = []

    async def run(command: tuple[str, ...], **_: object) -> Completed:
        services.append(command[-1])
        return Completed(0, b"", b"")

    monkeypatch.setattr(laptop, "run_program", run)
    return services


def machine(root: Path, service: str) -> Path:
    """A machine with this resolver; the file that kdns writes."""
    seen, written = MACHINES[service]
    (root / seen).parent.mkdir(parents=True)
    (root / seen).write_text("[main]\ndns=dnsmasq\n")
    return root / written


def contents(root: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}


@pytest.mark.parametrize("service", MACHINES)
async def test_it_is_written_and_removed_again(tmp_path: Path, restarted: list[str], service: str) -> None:
    file = machine(tmp_path, service)
    others = contents(tmp_path)
    assert await laptop.turn_on(NAMES, pytest.fail, tmp_path) == str(file)
    content = file.read_text()
    assert content.startswith(f"{MARK}\n")
    assert all(zone in content for zone in ("cluster.local", *REVERSE))
    assert "127.in-addr" not in content
    page = (Path(__file__).parents[3] / PAGE).read_text(encoding="utf-8")
    assert content.splitlines()[1] in page
    assert await laptop.turn_on(NAMES, pytest.fail, tmp_path) == str(file), "again, with other flags"
    assert await laptop.turn_off(tmp_path) == str(file)
    assert contents(tmp_path) == others
    assert await laptop.turn_off(tmp_path) == ""
    assert restarted == [service] * 3


@dataclass
class Refusing:
    """A service that starts with contents of its file in `accepted` only; `running` is that of its last start."""

    file: Path = Path()
    accepted: frozenset[str] = frozenset()
    running: str | None = None

    def content(self) -> str:
        return self.file.read_text() if self.file.exists() else ""

    async def run(self, _command: tuple[str, ...], **_: object) -> Completed:
        self.running = content if (content := self.content()) in self.accepted else None
        return Completed(0, b"", b"") if self.running is not None else Completed(1, b"", b"does not start")


@pytest.fixture
def refusing(monkeypatch: pytest.MonkeyPatch) -> Refusing:
    refusing = Refusing()
    monkeypatch.setattr(laptop, "run_program", refusing.run)
    return refusing


@pytest.mark.parametrize("service", MACHINES)
@pytest.mark.parametrize("before", ["", f"{MARK}\nold\n"])
async def test_a_service_that_does_not_start_is_started_as_it_was(
    tmp_path: Path, refusing: Refusing, service: str, before: str
) -> None:
    refusing.file = machine(tmp_path, service)
    refusing.file.parent.mkdir(parents=True, exist_ok=True)
    if before:
        refusing.file.write_text(before)
    refusing.accepted, refusing.running = frozenset({before}), before
    with pytest.raises(ApplyError, match=r"does not start$"):
        await laptop.turn_on(NAMES, pytest.fail, tmp_path)
    assert refusing.content() == refusing.running == before
    if before:
        with pytest.raises(ApplyError, match=r"does not start$"):
            await laptop.turn_off(tmp_path)
        assert refusing.content() == refusing.running == before
    assert sorted(path.name for path in refusing.file.parent.iterdir() if path.name.startswith(".")) == []


async def test_a_service_that_does_not_start_at_all_is_told_of(tmp_path: Path, refusing: Refusing) -> None:
    refusing.file = machine(tmp_path, "dnsmasq")
    told = f"does not start; {refusing.file} is as it was, but dnsmasq does not run: {PAGE}"
    with pytest.raises(ApplyError, match=re.escape(told)):
        await laptop.turn_on(NAMES, pytest.fail, tmp_path)
    assert not refusing.file.exists()


async def test_a_missing_systemctl_is_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = machine(tmp_path, "dnsmasq")

    async def run(*_: object, **__: object) -> Completed:
        raise FileNotFoundError(2, "No such file or directory")

    monkeypatch.setattr(laptop, "run_program", run)
    with pytest.raises(ApplyError, match=re.escape(f"No such file or directory; {PAGE} has it by hand")):
        await laptop.turn_on(NAMES, pytest.fail, tmp_path)
    assert not file.exists()


async def test_files_of_others_are_left_alone(tmp_path: Path, restarted: list[str]) -> None:
    file = machine(tmp_path, "dnsmasq")
    file.write_text("server=/cluster.local/192.0.2.1\n")
    with pytest.raises(InputError, match="was not written by `kdns laptop on`"):
        await laptop.turn_on(NAMES, pytest.fail, tmp_path)
    with pytest.raises(InputError, match="was not written by `kdns laptop on`"):
        await laptop.turn_off(tmp_path)
    assert (file.read_text(), restarted) == ("server=/cluster.local/192.0.2.1\n", [])


async def test_a_machine_with_another_resolver_is_told_where_it_stands_by_hand(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"no resolver that kdns knows is here; expected systemd-resolved, .*{PAGE}"):
        await laptop.turn_on(NAMES, pytest.fail, tmp_path)
    found = await laptop.status(NAMES, tmp_path)
    assert (found.service, found.file, found.is_on) == ("", "", False)


async def test_what_may_go_wrong_is_said_before(tmp_path: Path, restarted: list[str]) -> None:
    machine(tmp_path, "dnsmasq")
    (tmp_path / "etc/nsswitch.conf").write_text("passwd: files\nhosts: files mdns4_minimal [NOTFOUND=return] dns\n")
    warned: list[str] = []
    far = ClusterNames(HostPort("192.0.2.1", 53), "cluster.local", ())
    await laptop.turn_on(far, warned.append, tmp_path)
    assert [text.partition(" ")[0] for text in warned] == ["192.0.2.1:53", ".local"]
    assert restarted == ["dnsmasq"]


def test_sudo_is_named_only_where_it_helps(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot be read: Is a directory$"):
        laptop._own_content(tmp_path)  # noqa: SLF001 - the file of a machine
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"cannot be written: Not a directory$|cannot be written: File exists$"):
        laptop._write(tmp_path / "file" / "below", "text")  # noqa: SLF001 - the same
