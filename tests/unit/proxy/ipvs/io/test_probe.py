"""Why mode ipvs cannot run, in one sentence, and what its settings do to the kernel."""

import errno
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest

from kdns.errors import ApplyError, InputError
from kdns.netlink.ipset import Header, SetType
from kdns.netlink.ipvs import Operation, ServerOptions, Timeouts, Verb, VirtualServerKey
from kdns.proxy.ipvs.io import link, start, sysctls
from kdns.proxy.ipvs.io.start import timeouts
from kdns.proxy.ipvs.io.sysctls import apply_ipvs_sysctls, useful_sysctls
from kdns.proxy.ipvs.settings import IpvsSettings
from kdns.proxy.settings.settings import Settings
from kdns.proxy.xtables.io import programs

NO_TYPE = "the kernel has no sets of this type"


@dataclass
class Kernel:
    """A kernel with these schedulers; errors are those of opening sockets."""

    schedulers: Sequence[str] = ("rr", "mh")
    ipvs_error: int = 0
    ipset_error: int = 0
    shows: bool = True
    there: dict[VirtualServerKey, ServerOptions] = field(default_factory=dict)
    link: str = ""
    iptables: str = ""
    sysctls: str = ""
    lacking_type: str = ""
    sets: list[str] = field(default_factory=list)
    rules: str = ""

    def servers(self) -> dict[VirtualServerKey, ServerOptions]:
        return dict(self.there)

    def server(self, key: VirtualServerKey) -> ServerOptions | None:
        return self.there.get(key) if self.shows else None

    def carry_out(self, operations: Sequence[Operation]) -> list[tuple[Operation, int]]:
        (one,) = operations
        if one.verb is Verb.DELETE_SERVER:
            self.there.pop(one.server, None)
        elif one.options and one.options.scheduler in self.schedulers:
            self.there[one.server] = one.options
        else:
            return [(one, errno.ENOENT)]
        return []

    def headers(self) -> dict[str, Header]:
        return {}

    def lacks(self, type_name: str) -> str:
        return NO_TYPE if type_name == self.lacking_type else ""

    def create(self, name: str, _kind: SetType) -> None:
        self.sets.append(name)

    def destroy(self, name: str) -> None:
        self.sets = [set_ for set_ in self.sets if set_ != name]

    async def check(self, family: str, rules: Mapping[str, Sequence[str]]) -> str:
        """As the programs of iptables."""
        assert family == "IPv4"
        assert all(f"--match-set {name} " in rules["filter"][0] for name in self.sets)
        assert self.sets
        return self.rules


@pytest.mark.parametrize(
    ("kernel", "scheduler", "reason"),
    [
        (Kernel(), "", ""),
        (Kernel(), "mh", ""),
        (Kernel(schedulers=()), "", "the kernel has no scheduler rr; load its module ip_vs_rr"),
        (Kernel(), "sed", "the kernel has no scheduler sed; load its module ip_vs_sed"),
        (Kernel((), there={VirtualServerKey("10.96.0.1", 80, "TCP"): ServerOptions("sed")}), "sed", ""),
        (Kernel(shows=False), "", "the kernel does not show the virtual server 198.51.100.0:20000, which it has taken"),
        (
            Kernel(ipvs_error=errno.ENOENT),
            "",
            f"the kernel has no IPVS; load its module ip_vs ({os.uname().release})",
        ),
        (
            Kernel(ipvs_error=errno.EPERM),
            "",
            "IPVS may not be used; requires the capability CAP_NET_ADMIN, as root has it or a container is given it",
        ),
        (
            Kernel(ipset_error=errno.EINVAL),
            "",
            "the kernel has no sets of addresses (Invalid argument); load its module ip_set",
        ),
        (Kernel(link="no dummy"), "", "no dummy"),
        (Kernel(iptables="no iptables"), "", "no iptables"),
        (Kernel(sysctls="no sysctls"), "", "no sysctls"),
        (
            Kernel(lacking_type="hash:ip,port,net"),
            "",
            f"the kernel has no sets of type hash:ip,port,net ({NO_TYPE}); load its module ip_set_hash_ipportnet",
        ),
        (
            Kernel(rules="no match\nsecond line"),
            "",
            "rules of iptables cannot match sets (no match); load the kernel's modules xt_set and xt_ipvs",
        ),
    ],
)
async def test_why_it_cannot_run(kernel: Kernel, scheduler: str, reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = dict(kernel.there)
    replace(monkeypatch, kernel)
    assert await start.unsupported(Settings().with_section(IpvsSettings(scheduler=scheduler))) == reason
    assert kernel.there == before
    assert not kernel.sets


async def test_a_scheduler_that_no_kernel_has_is_a_mistake(monkeypatch: pytest.MonkeyPatch) -> None:
    replace(monkeypatch, Kernel())
    with pytest.raises(InputError, match="unknown scheduler 'fastest'; expected one of rr, "):
        await start.unsupported(Settings().with_section(IpvsSettings(scheduler="fastest")))


def replace(patch: pytest.MonkeyPatch, kernel: Kernel) -> None:
    @contextmanager
    def opened(error: int) -> Iterator[Kernel]:
        if error:
            raise OSError(error, os.strerror(error))
        yield kernel

    async def nothing(*_names: str) -> None: ...

    async def choose() -> tuple[Kernel | None, str]:
        return None if kernel.iptables else kernel, kernel.iptables

    patch.setattr(start, "ipvs", lambda: opened(kernel.ipvs_error))
    patch.setattr(start, "ipsets", lambda: opened(kernel.ipset_error))
    patch.setattr(start, "load_modules", nothing)
    patch.setattr(link, "unsupported", lambda: kernel.link)
    patch.setattr(sysctls, "unsupported", lambda: kernel.sysctls)
    patch.setattr(programs, "choose", choose)


@pytest.mark.parametrize(
    ("settings", "kernel", "expected"),
    [
        (IpvsSettings(), (4, 0), {}),
        (IpvsSettings(), (4, 1), {"conn_reuse_mode": 0}),
        (IpvsSettings(), (5, 8, 18), {"conn_reuse_mode": 0}),
        (IpvsSettings(), (5, 9), {}),
        (IpvsSettings(), (6, 1, 176), {}),
        (IpvsSettings(strict_arp=True), (6, 1), {"arp_ignore": 1, "arp_announce": 2}),
    ],
)
def test_sysctls(settings: IpvsSettings, kernel: tuple[int, ...], expected: dict[str, int]) -> None:
    always = {"expire_nodest_conn": 1, "expire_quiescent_template": 1}
    found = {name.rpartition("/")[2]: value for name, value in useful_sysctls(settings, kernel).items()}
    assert found == always | expected


def test_sysctls_that_are_needed_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = {"net/ipv4/vs/expire_nodest_conn"}
    monkeypatch.setattr(
        sysctls, "set_sysctl", lambda name, value: (False, f"{name} = {value}: no") if name in refused else (True, "")
    )
    apply_ipvs_sysctls(IpvsSettings())
    refused.add("net/ipv4/ip_forward")
    with pytest.raises(ApplyError, match="sysctls not set: net/ipv4/ip_forward = 1: no; set these values, or"):
        apply_ipvs_sysctls(IpvsSettings())


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (IpvsSettings(), Timeouts(0, 0, 0)),
        (IpvsSettings(tcp_timeout_s=900.0, tcp_fin_timeout_s=0.2, udp_timeout_s=50.6), Timeouts(900, 1, 51)),
        (IpvsSettings(tcp_timeout_s=7.2e9), Timeouts(2**31 - 1, 0, 0)),
    ],
)
def test_timeouts_are_whole_seconds(settings: IpvsSettings, expected: Timeouts) -> None:
    assert timeouts(settings) == expected


def test_timeouts_that_the_kernel_does_not_take_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    class Refusing:
        def set_timeouts(self, _wanted: Timeouts) -> None:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    @contextmanager
    def opened() -> Iterator[Refusing]:
        yield Refusing()

    monkeypatch.setattr(start, "apply_ipvs_sysctls", lambda _settings: None)
    monkeypatch.setattr(start, "ipvs", opened)
    with pytest.raises(ApplyError, match=r"tcp_s=36000000.*Invalid argument; expected 2147483 s or less"):
        start._prepare(IpvsSettings(tcp_timeout_s=36e6))  # noqa: SLF001 - the rest needs programs
