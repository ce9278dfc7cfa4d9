"""`kdns proxy` as an operator meets it: its command line, and what it says of nodes and modes that are not there."""

import asyncio
from pathlib import Path

import msgspec
import pytest
import structlog
from click.testing import CliRunner
from structlog.testing import capture_logs
from wholefiles import replace

from kdns.apps.proxy import NodeProxy, api_source
from kdns.cli.commands.proxy import log_level
from kdns.cli.main import main
from kdns.cluster.objects import Node
from kdns.errors import InputError
from kdns.proxy.nftables.mode import NftablesSettings
from kdns.proxy.settings.io.files import load_settings, other_settings
from kdns.proxy.settings.settings import Logging, Settings


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        (["--nodeport-addresses", "10.0.0.0/8", "--nodeport-addresses", "192.0.2.0/24,fd00::/8"],
         {"node_port_addresses": ("10.0.0.0/8", "192.0.2.0/24", "fd00::/8")}),
        (["--nodeport-addresses="], {"node_port_addresses": ()}),
        (["--feature-gates", "PreferSameTrafficDistribution=false", "--feature-gates", "ComponentFlagz=true"],
         {"feature_gates": {"PreferSameTrafficDistribution": False, "ComponentFlagz": True}}),
        (["--oom-score-adj", "1", "--oom-score-adj", "2"], {"oom_score_adj": 2}),
        (["--oom_score_adj", "3", "--masquerade_all"],
         {"oom_score_adj": 3, "sections": {NftablesSettings: NftablesSettings(masquerade_all=True)}}),
        (["-v=2"], {"logging": Logging(verbosity=2)}),
        (["-v", "4"], {"logging": Logging(verbosity=4)}),
    ],
)  # fmt: skip
def test_flags_given_twice_or_spelt_with_underscores(
    arguments: list[str], wanted: dict[str, object], tmp_path: Path
) -> None:
    written = tmp_path / "config.yaml"
    given = ["proxy", "--cluster-cidr", "10.1.0.0/16", *arguments, "--write-config-to", str(written)]
    done = CliRunner().invoke(main, given)
    assert (done.exit_code, done.output) == (0, "")
    settings = load_settings(written, print)
    assert {name: getattr(settings, name) for name in wanted} == wanted


@pytest.mark.parametrize(("verbosity", "level"), [(0, "info"), (3, "info"), (4, "debug"), (9, "debug")])
def test_verbosity_decides_what_is_logged(verbosity: int, level: str) -> None:
    assert log_level(Settings(logging=Logging(verbosity=verbosity)), "info") == level


def test_the_version() -> None:
    done = CliRunner().invoke(main, ["proxy", "--version"])
    assert (done.exit_code, done.output.split()[0]) == (0, "kdns,")


@pytest.mark.parametrize(("flag", "is_warned"), [("--write-config-to=/dev/null", True), ("--init-only", False)])
def test_what_is_done_once_needs_no_warning_about_rules(flag: str, is_warned: bool) -> None:
    leave = ["--conntrack-max-per-core=0", "--conntrack-tcp-timeout-established=0"]
    leave += ["--conntrack-tcp-timeout-close-wait=0"]
    done = CliRunner().invoke(main, ["proxy", *leave, flag])
    assert (done.exit_code, "--cluster-cidr: is unset" in done.output) == (0, is_warned)


async def test_a_file_that_is_being_written_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    stamps = [(1, 1, 10), (2, 1, 0), (3, 1, 5), (4, 1, 9), (4, 1, 9), (5, 1, 0), (1, 1, 10), (1, 1, 10), (6, 1, 8)]
    looks = iter([*stamps, stamps[-1]])
    reads: list[int] = []

    def look(file: Path | None) -> tuple[int, int, int]:
        del file
        return next(looks)

    def read() -> Settings:
        reads.append(1)
        return Settings(mode="nftables" if len(reads) < 3 else "userspace")

    monkeypatch.setattr("kdns.proxy.settings.io.files._stamp", look)
    assert (await other_settings(read, Settings(mode="nftables"), Path("x"), 0.0, asyncio.Event())).mode == "userspace"
    assert len(reads) == 3, "as it was written, as it was before again, and as it is in the end"
    assert not list(looks)


async def test_who_asks_need_not_wait_for_the_next_look(tmp_path: Path) -> None:
    """At SIGUSR1 and SIGHUP; that nothing has changed is said."""
    file, asked = tmp_path / "mode", asyncio.Event()
    file.write_text("nftables")
    settings, every_s = Settings(mode="nftables"), 3600.0
    work = asyncio.create_task(other_settings(lambda: Settings(mode=file.read_text()), settings, file, every_s, asked))
    with capture_logs() as logs:
        async with asyncio.timeout(60):
            asked.set()
            while asked.is_set():  # noqa: ASYNC110 - the other task clears it
                await asyncio.sleep(0.001)
            replace(file, "userspace")
            asked.set()
            assert (await work).mode == "userspace"
    assert [line["event"] for line in logs] == ["settings read again, nothing has changed"]


def test_a_master_that_is_no_url_is_told_of_by_its_flag() -> None:
    with pytest.raises(InputError, match=r"^--master: 'nonsense' is not an address of an API server"):
        api_source(Settings(), "nonsense")


@pytest.mark.parametrize(
    ("mode", "node", "said"),
    [
        ("ClusterCIDR", None, ["the Node itself; --hostname-override says which it is"]),
        ("ClusterCIDR", {}, []),
        ("NodeCIDR", {}, ["its podCIDRs, for which detectLocalMode NodeCIDR waits"]),
        ("NodeCIDR", {"podCIDR": "10.1.0.0/24"}, []),
    ],
)
def test_what_is_missing_of_the_node_is_told_once_and_not_before_it_is_known(
    mode: str, node: dict[str, str] | None, said: list[str]
) -> None:
    settings = Settings(detect_local_mode=mode, hostname_override="here")
    proxy = NodeProxy(settings, api_source(settings))
    with structlog.testing.capture_logs() as logged:
        proxy.log_missing()
        assert logged == []
        if node is not None:
            proxy.state.upsert(msgspec.convert({"metadata": {"name": "here"}, "spec": node}, Node))
        proxy.state.synced.add(Node)
        for _ in range(2):
            proxy.log_missing()
    assert [each["missing"] for each in logged] == said
    assert all(each["node"] == "here" for each in logged)
