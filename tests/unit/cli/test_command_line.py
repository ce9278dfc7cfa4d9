"""Texts of the command line that are no values, and what the process asks of the system."""

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

import kdns
from kdns.cli import flags
from kdns.cli.main import main
from kdns.cluster.io.kubeconfig import kubeconfig
from kdns.controlplane.server.io.secure_serving import read_tokens
from kdns.corefile.lexer import Token
from kdns.dnsserver.io.corefile import read_corefile
from kdns.errors import CorefileError, InputError, KubeconfigError
from kdns.net import HostPort
from kdns.plugins.directives import BY_NAME
from kdns.runtime.files import bounded
from kdns.serverblocks.stanza import duration_s


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("127.0.0.1:0", HostPort("127.0.0.1", 0)),
        ("[::1]:65535", HostPort("::1", 65535)),
        ("localhost:1053", HostPort("127.0.0.1", 1053)),
        ("127.0.0.1:65536", None),
        ("127.0.0.1:" + "9" * 5000, None),
        ("127.0.0.1:٣", None),
        ("127.0.0.1", None),
        (":53", None),
    ],
)
def test_host_and_port(text: str, expected: HostPort | None) -> None:
    if expected:
        assert flags.host_port("--dns", text) == expected
    else:
        with pytest.raises(InputError, match=r"^--dns .*expected HOST:PORT"):
            flags.host_port("--dns", text)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("10.96.0.0/29", ""),
        ("10.96.0.0/16, fd00::/64", ""),
        ("fd00::/112,10.96.0.0/12", ""),
        ("10.96.0.0/30", "too small; expected networks of at least 8 addresses"),
        ("10.96.0.0/16,fd00::/127", "too small"),
        ("fd00::/48", "too large; expected an IPv6 network of /64 or longer"),
        ("10.96.0.0/16,10.97.0.0/16", "expected at most one network of each IP family"),
        ("10.96.0.0/16,fd00::/112,10.97.0.0/16", "expected at most one network of each IP family"),
        ("127.96.0.0/16", ""),
        ("127.0.0.0/24", "has the address of this machine itself; expected a range without"),
        ("169.254.0.0/20", "has link-local addresses"),
        ("224.0.0.0/8", "has multicast addresses"),
        ("fe80::/64", "has link-local addresses"),
        ("10.96.0.1/16", "has host bits set; expected CIDR[,CIDR]"),
        ("", "expected CIDR[,CIDR], such as 10.96.0.0/16"),
    ],
)
def test_service_ranges(text: str, problem: str) -> None:
    if problem:
        with pytest.raises(InputError, match=rf"^--service-cidr .*{re.escape(problem)}"):
            flags.service_networks(text)
    else:
        assert [str(network) for network in flags.service_networks(text)] == text.split(", " if ", " in text else ",")


@pytest.mark.parametrize(
    ("service", "pods", "pool", "says"),
    [
        ("10.96.0.0/16", "10.244.0.0/16", "192.0.2.0/28,192.0.2.16/28", ""),
        ("10.96.0.0/16,fd00::/112", "10.244.0.0/16,fd01::/64", "", ""),
        ("10.96.0.0/12", "10.100.0.0/16", "", "--pod-cidr '10.100.0.0/16': overlaps 10.96.0.0/12 of --service-cidr; "),
        ("fd00::/112", "fd00::/64", "", "--pod-cidr 'fd00::/64': overlaps fd00::/112 of --service-cidr; "),
        ("10.96.0.0/16", "10.244.0.0/16", "10.96.255.0/24", "--lb-pool '10.96.255.0/24': overlaps 10.96.0.0/16 of --s"),
        ("10.96.0.0/16", "10.244.0.0/16", "10.244.9.9-10.245.0.1", "--lb-pool '10.244.9.9-10.245.0.1': overlaps 10.24"),
        ("10.96.0.0/16", "10.244.0.0/16", "192.0.2.1-192.0.2.9,192.0.2.9-192.0.2.10", "overlaps 192.0.2.1-192.0.2.9"),
        ("10.96.0.0/16", "10.244.0.0/16", "192.0.2.9-192.0.2.10,192.0.2.1-192.0.2.9", "overlaps 192.0.2.9-192.0.2.10"),
        (
            "10.96.0.0/16",
            "10.244.0.0/16",
            "192.0.2.0/28,192.0.2.9-192.0.2.99",
            "--lb-pool '192.0.2.9-192.0.2.99': overlaps 192.0.2.0/28 of --lb-pool; expected disjoint ranges",
        ),
        ("10.96.0.0/16", "fd01::/64", "", "--pod-cidr 'fd01::/64': expected a network for IPv4 as in --service-cidr"),
    ],
)
def test_ranges_that_overlap_are_refused_naming_both(service: str, pods: str, pool: str, says: str) -> None:
    ranges = ["--service-cidr", service, "--pod-cidr", pods]
    up = CliRunner().invoke(main, ["up", *ranges, "--lb-pool", pool, "--api", "nowhere"])
    assert (says or "--api 'nowhere'") in " ".join(up.stderr.split())
    if not pool:
        render = CliRunner().invoke(main, ["render", *ranges, "--manifests", "nowhere"])
        assert (says or "nowhere: no such file or folder") in " ".join(render.stderr.split())


@pytest.mark.parametrize("text", ["9-1", "0-5", "1-65536", "80"])
def test_a_range_of_node_ports(text: str) -> None:
    with pytest.raises(InputError, match=rf"^--node-port-range '{text}': expected FROM-TO within 1-65535"):
        flags.node_port_range(text)


@pytest.mark.parametrize(
    ("mode", "says"), [("nftables", "mode nftables serves no loopback addresses"), ("userspace", "")]
)
def test_a_mode_serves_the_range_of_cluster_ips(mode: str, says: str) -> None:
    ranges = ["--service-cidr", "127.96.0.0/16", "--proxy-mode", mode]
    up = CliRunner().invoke(main, ["up", *ranges, "--api", "nowhere"])
    assert (says or "--api 'nowhere'") in " ".join(up.stderr.split())


def test_a_token_file_is_text(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match=r"tokens: not text; expected one token per line$"):
        read_tokens(path)
    path.write_text('# ours\n\n one \ntwo, ann ,7,"a, b"\nthree,bob,\none,eve,\n')
    assert {token: user.info for token, user in read_tokens(path).items()} == {
        "one": {"username": "eve", "groups": ["system:authenticated"]},
        "two": {"username": "ann", "uid": "7", "groups": ["a", "b", "system:authenticated"]},
        "three": {"username": "bob", "groups": ["system:authenticated"]},
    }
    for wrong in ("one,two", ",bob,1", "t,,1"):
        path.write_text(f"first\n{wrong}\n")
        with pytest.raises(InputError, match=r'tokens:2: expected a token, or token,user,uid,"group,group"$'):
            read_tokens(path)


def test_a_duration_of_many_digits_is_refused() -> None:
    with pytest.raises(CorefileError, match="expected a duration"):
        duration_s(Token("Corefile", 1, "9" * 5000 + "s"))


@pytest.mark.parametrize(
    ("option", "first"), [("-version", f"kdns-{kdns.__version__}"), ("-plugins", f"dns.{min(BY_NAME)}")]
)
def test_what_coredns_prints_about_itself(option: str, first: str) -> None:
    result = CliRunner().invoke(main, ["serve", option])
    assert (result.exit_code, result.stdout.splitlines()[0]) == (0, first)


@pytest.mark.parametrize(
    "line", ["check", "up", "up --data", "up --kubeconfig", "up --token-file", "env --manifests", "render --config"]
)
def test_an_empty_path_is_not_the_current_folder(line: str) -> None:
    result = CliRunner().invoke(main, [*line.split(), ""])
    assert (result.exit_code, result.stdout) == (2, "")
    assert "the path is empty; the current folder is `.`" in result.stderr


def test_files_that_never_end_are_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded, "CHARACTERS_MAX", 1000)
    with pytest.raises(KubeconfigError, match=r"^/dev/zero: too large, expected at most 1000 characters; "):
        kubeconfig("/dev/zero", "")
    with pytest.raises(InputError, match=r"^--token-file /dev/zero: too large, expected at most 1000 characters$"):
        read_tokens(Path("/dev/zero"))


def test_a_corefile_that_never_ends_is_an_error() -> None:
    with pytest.raises(CorefileError, match=r"^/dev/zero: cannot be read: too large, expected at most 16777216 "):
        read_corefile("/dev/zero", BY_NAME, dns_port=53).checked()
