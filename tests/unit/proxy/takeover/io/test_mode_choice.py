"""Which mode runs where some cannot, and what is said of it."""

import re
from dataclasses import replace
from typing import Any

import pytest
from fake_modes import fake_row

from kdns.errors import ApplyError
from kdns.proxy.ipvs.settings import IpvsSettings
from kdns.proxy.modes import MODES
from kdns.proxy.nftables.io import nft
from kdns.proxy.nftables.io import start as nftables
from kdns.proxy.nftables.mode import NftablesSettings
from kdns.proxy.plan.config import PRIMARY
from kdns.proxy.settings.plan_config import proxy_config
from kdns.proxy.settings.section import Masquerading
from kdns.proxy.settings.settings import Settings
from kdns.proxy.takeover.io.choice import choice, in_mode
from kdns.proxy.xtables.settings import IptablesSettings
from kdns.runtime.requirements import version_problem

FALLBACKS = ("iptables", "nftables")
NO_IPVS = "the kernel has no IPVS; wanted: the module ip_vs"
NO_IPTABLES = "iptables-restore is not installed; install the package iptables"
CASES: tuple[tuple[str, dict[str, str], str], ...] = (
    ("ipvs", {}, "ipvs"),
    ("ipvs", {"ipvs": NO_IPVS}, "iptables"),
    ("ipvs", {"ipvs": NO_IPVS, "iptables": NO_IPTABLES}, "nftables"),
    ("ipvs", {"iptables": NO_IPTABLES}, "ipvs"),
    ("nftables", {"ipvs": NO_IPVS}, "nftables"),
)


@pytest.mark.parametrize(("configured", "reasons", "wanted"), CASES)
async def test_the_first_one_that_works_is_taken_and_a_fallback_told(
    configured: str, reasons: dict[str, str], wanted: str
) -> None:
    names = ("ipvs", *FALLBACKS)
    rows = {
        name: fake_row(name, reason=reasons.get(name, ""), fallbacks=FALLBACKS if name == "ipvs" else ())
        for name in names
    }
    made = await choice(Settings(mode=configured), rows.__getitem__)
    assert (made.mode.name, made.settings.mode) == (wanted, wanted)
    passed_over = {name: reasons[name] for name in names if name in made.reasons}
    assert made.reasons == passed_over
    if wanted == configured:
        assert not made.fallback
        return
    assert made.fallback.startswith(f"mode {wanted} takes the place of mode {configured}: mode {configured} cannot")
    assert all(reason in made.fallback for reason in passed_over.values())


async def test_where_none_works_every_reason_is_told() -> None:
    rows = {
        "ipvs": fake_row("ipvs", reason=NO_IPVS, fallbacks=("nftables",)),
        "nftables": fake_row("nftables", reason="x"),
    }
    with pytest.raises(ApplyError, match=re.escape(f"ipvs: mode ipvs: {NO_IPVS}; mode nftables: x")):
        await choice(Settings(mode="ipvs"), rows.__getitem__)
    with pytest.raises(ApplyError, match="nftables: x"):
        await choice(Settings(mode="nftables"), rows.__getitem__)


OWN: dict[str, Any] = {"masquerade_bit": 7, "masquerade_all": True, "sync_period_s": 9.0, "min_sync_period_s": 2.0}
CONFIGURED = Settings(mode="ipvs").with_section(IptablesSettings(**OWN)).with_section(IpvsSettings(sync_period_s=5.0))


@pytest.mark.parametrize(
    ("settings", "mode", "section", "primary"),
    [
        (CONFIGURED, "iptables", IptablesSettings(**OWN), False),
        (CONFIGURED, "nftables", NftablesSettings(**OWN), True),
        (CONFIGURED.with_section(NftablesSettings(masquerade_bit=5)), "nftables",
         NftablesSettings(masquerade_bit=5), True),
        (Settings(), "iptables", IptablesSettings(), False),
    ],
)  # fmt: skip
def test_the_settings_in_effect_are_those_of_the_mode_in_effect(
    settings: Settings, mode: str, section: Masquerading, primary: bool
) -> None:
    in_effect = in_mode(settings, mode)
    assert (in_effect.mode, in_effect.section(MODES[mode].periods)) == (mode, section)
    config = proxy_config(in_effect, None)
    assert (config.mode.name, config.node_port_addresses == (PRIMARY,)) == (mode, primary)
    assert config.masquerade_all == section.masquerade_all
    assert replace(in_effect, mode=settings.mode).with_section(settings.section(type(section))) == settings


@pytest.mark.parametrize(
    ("found", "wanted", "reason"),
    [
        ("nftables v1.0.6 (Lester Gooch #5)", (1, 0, 1), ""),
        ("nftables v1.0.1 (Fearless Fosdick #3)", (1, 0, 1), ""),
        ("nftables v0.9.8 (E.D.S.)", (1, 0, 1), "nft is 0.9.8; expected 1.0.1 or later"),
        ("5.10.0-32-amd64", (5, 13), "nft is 5.10.0; expected 5.13 or later"),
        ("5.13", (5, 13), ""),
        ("6.18.5+", (5, 13), ""),
        ("", (1, 0, 1), ""),
    ],
)
def test_versions(found: str, wanted: tuple[int, ...], reason: str) -> None:
    assert version_problem("nft", found, wanted) == reason


@pytest.mark.parametrize(
    ("release", "skips", "refused", "reason"),
    [
        ("6.1.0-18-amd64", False, "", ""),
        ("5.10.0-32-amd64", False, "", "the kernel is 5.10.0; expected 5.13 or later; KUBE_PROXY_NFTABLES_SKIP"),
        ("5.10.0-32-amd64", True, "", ""),
        ("6.1.0-18-amd64", False, "not supported", "not supported"),
    ],
)
async def test_the_floors_of_nftables(
    monkeypatch: pytest.MonkeyPatch, release: str, skips: bool, refused: str, reason: str
) -> None:
    async def check(*commands: str) -> str:
        assert all("kdns-check" in command for command in commands)
        return refused

    monkeypatch.setattr(nft, "check", check)
    monkeypatch.setattr("os.uname", lambda: type("", (), {"release": release}))
    monkeypatch.setenv(nftables.SKIPS_KERNEL, "1" if skips else "")
    found = await nftables.unsupported(Settings())
    assert found.startswith(reason)
    assert bool(found) == bool(reason)
