"""Server blocks → servers: which directives there are, how often they may stand, and who listens where."""

import subprocess
import sys
from dataclasses import replace
from ipaddress import ip_network
from pathlib import Path

import pytest
from dns_chain import only
from yaml_file import yaml_file

from kdns.corefile.imports import no_files
from kdns.corefile.parse import parse
from kdns.dnsserver.io.corefile import corefile_of
from kdns.errors import CorefileError
from kdns.net import HostPort
from kdns.plugins.changes import loadbalance
from kdns.plugins.directives import BY_NAME, COREDNS_ONLY, COREDNS_ORDER, configure
from kdns.plugins.settings import SETTINGS
from kdns.serverblocks.advice import ADVICE, EXTERNAL, REMOVED, REMOVED_OPTIONS
from kdns.serverblocks.block_options import BindConfig, BlockOptions, HealthPage, MetricsPage, ReadyPage, StatusPage
from kdns.serverblocks.config import TRANSPORTS, server_configs
from kdns.serverblocks.directive import Repeat
from kdns.serverblocks.listener_options import DEFAULTS, ListenerOptions, TlsConfig, listener_options

REFUSED: list[list[str]] = yaml_file(Path(__file__).parents[2] / "golden" / "corefile_directives.yaml")["servers"]


@pytest.mark.parametrize(("text", "message"), REFUSED)
def test_refused(text: str, message: str) -> None:
    with pytest.raises(CorefileError) as caught:
        configure(parse(text, "F"))
    schemes = ", ".join(f"{scheme}://" for scheme in TRANSPORTS)
    directives = ", ".join(sorted(BY_NAME))
    assert str(caught.value) == message.replace("{directives}", directives).replace("{schemes}", schemes)


def test_a_zone_name_has_a_limit() -> None:
    with pytest.raises(CorefileError, match="at most 253 characters"):
        configure(parse(f"{'a.' * 126}aa {{\n}}"))


@pytest.mark.parametrize(
    "text",
    [
        "a {\n}\nb {\n}",
        "a {\n}\na:1053 {\n}",
        "a {\nbind 127.0.0.1\n}\na {\nbind ::1\n}",
        "a {\nbind lo eth0 {\nexcept eth0\n}\n}\na {\nbind eth0\n}",
        "a {\nbind ::1\nbind ::1\n}",
        "a:0 {\n}\na:0 {\n}",
        "errors {\n}",
    ],
)
def test_accepted(text: str) -> None:
    assert configure(parse(text))


def test_a_mistake_in_a_snippet_is_told_once() -> None:
    blocks = parse("(s) {\nbufsize x\n}\na {\nimport s\n}\nb {\nimport s\n}", "F")
    assert [error.line for error in server_configs(blocks, BY_NAME)[2]] == [2]


def test_the_default_port_is_an_argument() -> None:
    assert configure(parse("a {\n}\na:1053 {\n}"))
    with pytest.raises(CorefileError, match="port 1053"):
        configure(parse("a {\n}\na:1053 {\n}"), dns_port=1053)


MINIMAL = {
    "autopath": "autopath @kubernetes",
    "forward": "forward . ::1",
    "root": "root .",
    "tls": "tls c k",
    "timeouts": "timeouts {\nidle 1s\n}",
    "bind": "bind ::1",
    "rewrite": "rewrite type A AAAA",
    "template": "template ANY ANY",
    "view": "view v",
    "dnstap": "dnstap S",
    "header": "header {\nresponse set ra\n}",
    "auto": "auto {\n directory zones\n}",
    "secondary": "secondary {\n transfer from ::1\n}",
    "file": "file db",
    "transfer": "transfer {\nto *\n}",
}
"""The shortest stanza of a directive that needs arguments."""


@pytest.mark.parametrize("name", sorted(BY_NAME))
def test_repeated_directives(name: str) -> None:
    stanza, row = MINIMAL.get(name, name), BY_NAME[name]
    text = f". {{\n{stanza}\n{stanza}\n}}"
    if row.repeat is Repeat.ERROR:
        with pytest.raises(CorefileError, match="only once"):
            configure(parse(text))
    else:
        (server,) = configure(parse(text))
        assert len(server.configs(row)) == (2 if row.repeat is Repeat.ADD else 1)


def test_the_last_of_several_counts() -> None:
    (server,) = configure(parse(". {\nhealth :1\nloadbalance\nhealth :2\nloadbalance {\nprefer 10.0.0.0/8\n}\n}"))
    assert only(server, SETTINGS["health"]).address == HostPort("", 2)
    assert only(server, loadbalance.DIRECTIVE).prefer == (ip_network("10.0.0.0/8"),)


def test_a_server_without_directives_has_none() -> None:
    (server,) = configure(parse("A.org a.org:54 b.org", "F"))
    assert server.zones == ("a.org.", "b.org.")
    assert (server.path, server.line) == ("F", 1)
    assert [server.configs(row) for row in BY_NAME.values()] == [()] * len(BY_NAME)


@pytest.mark.parametrize(
    ("stanzas", "options"),
    [
        ("", BlockOptions(udp_bytes=1232)),
        ("bufsize 600\nmultisocket 2\nreload off", BlockOptions(udp_bytes=600, processes=2, reload_s=(0.0, 0.0))),
        ("debug\nerrors", BlockOptions(udp_bytes=1232, logs_stacks=True, logs_debug=True)),
        ("errors {\nstacktrace\n}", BlockOptions(udp_bytes=1232, logs_stacks=True)),
        (
            "bind lo {\nexcept ::1\n}\nbind ::1",
            BlockOptions(udp_bytes=1232, binds=(BindConfig(("lo",), ("::1",)), BindConfig(("::1",)))),
        ),
        (
            "status\nprometheus\nhealth {\nlameduck 5s\n}\nready",
            BlockOptions(udp_bytes=1232, pages=(ReadyPage(), HealthPage(lameduck_s=5.0), MetricsPage(), StatusPage())),
        ),
        (
            "quic {\nmax_streams 5\n}\ntimeouts {\nread 1s\n}",
            BlockOptions(udp_bytes=1232, listener=ListenerOptions(read_s=1.0, quic_streams=5, quic_pending=1024)),
        ),
        (
            "tls c k /ca {\nkeylog log\n}\nroot /x",
            BlockOptions(
                udp_bytes=1232,
                root="/x",
                listener=ListenerOptions(tls=TlsConfig("/x/c", "/x/k", "/ca", keylog="/x/log")),
            ),
        ),
    ],
)
def test_settings_of_a_block_are_one_value(stanzas: str, options: BlockOptions) -> None:
    (server,) = configure(parse(f". {{\n{stanzas}\n}}"))
    assert server.options == options


def test_the_last_block_of_an_address_decides_on_each_option() -> None:
    servers = configure(parse("a {\ntimeouts {\nread 1s\nidle 2s\n}\n}\nb {\ntimeouts {\nread 3s\n}\n}\nc {\n}"))
    options = listener_options(server.options.listener for server in servers)
    assert options == replace(DEFAULTS, read_s=3.0, idle_s=2.0)


OWN = {"status"}
"""Directives that nothing of CoreDNS is called."""


def test_the_rows_are_in_the_order_of_coredns() -> None:
    assert [name for name in COREDNS_ORDER if name in BY_NAME] == [name for name in BY_NAME if name not in OWN]
    assert len(set(COREDNS_ORDER)) == len(COREDNS_ORDER)
    assert {*COREDNS_ORDER} - BY_NAME.keys() == COREDNS_ONLY


def test_each_directive_of_coredns_is_here_or_has_advice() -> None:
    assert ADVICE.keys() == COREDNS_ONLY
    page = (Path(__file__).parents[3] / "docs" / "corefile.md").read_text(encoding="utf-8")
    assert not EXTERNAL.keys() & (COREDNS_ONLY | BY_NAME.keys())
    assert [name for name, text in {**ADVICE, **EXTERNAL}.items() if f"| `{name}` | {text} |" not in page] == []
    rows = [(f"`{name}`", removal) for name, removal in REMOVED.items()]
    rows += [(f"`{name}` | `{directive}`", removal) for (directive, name), removal in REMOVED_OPTIONS.items()]
    assert [row for row, (release, instead) in rows if f"| {row} | {release} | {instead} |" not in page] == []
    assert not REMOVED.keys() & (COREDNS_ONLY | BY_NAME.keys() | EXTERNAL.keys())


@pytest.mark.parametrize(("directive", "option"), sorted(REMOVED_OPTIONS))
def test_each_removed_option_is_refused_with_its_release(directive: str, option: str) -> None:
    release, instead = REMOVED_OPTIONS[directive, option]
    stanza = MINIMAL.get(directive, directive).partition(" {")[0]
    _, _, errors = server_configs(parse(f". {{\n{stanza} {{\n{option} x\n}}\n}}", "F"), BY_NAME)
    assert str(errors[0]) == (
        f"F:3: {directive}: CoreDNS removed the option `{option}` in {release}: {instead} (at {option!r})"
    )


IMPORTS = [
    (". {\nimport a\nimport b c\ncache 0\n}\nimport c\n", [(2, "a"), (3, "import"), (6, "c"), (4, "0")]),
    (". {\ntransfer {\nimport a\n}\nrewrite {\nimport a\n}\n}\n", [(3, "a"), (6, "a")]),
    ("(s) {\nimport a\n}\n. {\nimport s\n}\nb {\nimport s\nreayd\n}\n", [(2, "a"), (9, "reayd")]),
    ("tls://. {\nimport certificate\n}\n", [(2, "certificate")]),
    ("import a\n", [(1, "a")]),
    ("(a) {\nimport a\nerors\n}\n. {\nimport a\n}\n", [(2, "a"), (3, "erors")]),
]


@pytest.mark.parametrize(("text", "expected"), IMPORTS)
def test_wrong_imports_hide_no_mistakes(text: str, expected: list[tuple[int, str]]) -> None:
    errors = corefile_of(text, "F", BY_NAME, dns_port=53, read_imports=no_files).errors
    assert [(error.line, error.token) for error in errors] == expected


def test_every_mistake_is_told_at_its_line() -> None:
    text = """. {
        reload 1s
        pprof {
            block a
            blokc
            block b c
        }
        grpc . 1.1.1.1
        ready
        ready
        timeouts {
            idle 0s
        }
        forward . a:b:c {
            max_fails x
            policy y
        }
        cache 0 {
            success -1
            success 5
        }
        https {
            max_connections x
            max_connections 1
        }
    }
    grpc://a {
    }
    """
    lines = [(error.line, error.token) for error in server_configs(parse(text, "F"), BY_NAME)[-1]]
    assert lines == [
        (2, "1s"),
        (4, "a"),
        (5, "blokc"),
        (6, "c"),
        (8, "grpc"),
        (10, "ready"),
        (12, "0s"),
        (14, "a:b:c"),
        (15, "x"),
        (16, "y"),
        (18, "0"),
        (19, "-1"),
        (24, "max_connections"),
        (23, "x"),
        (27, "grpc://a"),
    ]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (". {\nready\n}", []),
        (
            "a {\n}\na {\n}\nb a {\nreayd\n}\na {\n}\n",
            [
                "F:6: unknown directive `reayd`; did you mean `ready`? (at 'reayd')",
                "F:3: a. on port 53 is already served by the block at F:1 (at 'a')",
                "F:5: a. on port 53 is already served by the block at F:1 (at 'a')",
                "F:8: a. on port 53 is already served by the block at F:1 (at 'a')",
            ],
        ),
        ("a {\nbind ::1\n}\na {\nbind ::1,x\n}\na {\nview\n}\n", ["F:5: ", "F:8: "]),
        ("tls://a {\nreayd\n}\n", ["F:2: unknown directive `reayd`", "F:1: tls:// needs the directive `tls`"]),
        ("tls://a {\n}\ntls://b {\n}\n", ["F:1: tls:// needs the directive `tls`", "F:3: tls:// needs the directive"]),
        ("tls://a {\n}\ntls://b {\ntls\n}\n", ["F:4: tls: an argument is missing; expected `tls CERT KEY [CA]`"]),
        (
            "tls://a {\ntls c k\n}\ntls://b {\ntls c2 k\n}\ntls://c {\nbind 127.0.0.1\ntls c3 k\n}\n",
            [
                "F:4: `tls` differs from that of the block at F:1, which listens at the same address",
                "F:7: cannot listen on port 853 on 127.0.0.1 beside every address, which the block at F:1 listens on; ",
            ],
        ),
        (
            "a:81 {\nready :81\nhealth :82\nstatus localhost:82\nprometheus [::1]:82\n}\nb {\nhealth :82\n}\n",
            [
                "F:2: ready: cannot listen on :81: the block at F:1 listens on port 81",
                "F:5: prometheus: cannot listen on [::1]:82: `health` at F:3 listens on port 82",
                "F:4: status: cannot listen on localhost:82: `health` at F:3 listens on port 82",
            ],
        ),
        ("a:81 {\nbind 127.0.0.1\nhealth 127.0.0.2:81\nready [::1]:81\n}\nquic://b:82 {\ntls c k\nhealth :82\n}\n", []),
        (
            "a:81 {\nbind 127.0.0.1 lo\nhealth :81\n}\nb:81 {\nbind lo\nready lo:81\n}\n",
            ["F:3: health: cannot listen on :81: the block at F:1 listens on port 81"],
        ),
        ("tls://a {\ntls c k\nbind lo\n}\ntls://b {\ntls c2 k\n}\n", []),
        ("tls://a {\nroot /x\ntls c k\n}\ntls://b {\ntls /x/c /x/k\n}\n", []),
        (
            "tls://a {\nroot /x\ntls c k\n}\ntls://b {\nroot /y\ntls c k\n}\n",
            ["F:5: `tls` differs from that of the block at F:1, which listens at the same address"],
        ),
        (
            "a:1 {\nbind ::1\n}\ntls://b:1 {\ntls c k\nbind ::1\n}\n",
            ["F:4: port 1 cannot be shared by tls:// and dns://, which the block at F:1 listens with"],
        ),
        (
            "quic://a:1 {\ntls c k\nbind 127.0.0.2\n}\ntls://b:1 {\ntls c k\nbind 127.0.0.1 ::1\n}\nhttps://c:1 {\n}\n",
            ["F:9: port 1 cannot be shared by https:// and tls://, which the block at F:5 listens with"],
        ),
        (
            "a:1 {\nbind 127.0.0.1 ::1\n}\nb:1 {\nbind 0.0.0.0\n}\nc:1 {\nbind 127.0.0.2\n}\nd:1 {\nbind ::2\n}\n",
            [
                "F:4: cannot listen on port 1 on 0.0.0.0 beside 127.0.0.1, which the block at F:1 listens on; ",
                "F:7: cannot listen on port 1 on 127.0.0.2 beside 0.0.0.0, which the block at F:4 listens on; ",
            ],
        ),
    ],
)
def test_every_mistake_between_blocks_is_told(text: str, says: list[str]) -> None:
    *_, errors = server_configs(parse(text, "F"), BY_NAME)
    assert len(errors) == len(says), errors
    for error, said in zip(errors, says, strict=True):
        assert str(error).startswith(said)


def test_a_directive_is_imported_when_a_corefile_has_it() -> None:
    program = (
        "import sys\n"
        "from kdns.plugins.directives import configure\n"
        "from kdns.corefile.parse import parse\n"
        "configure(parse('. {\\n whoami\\n}\\n'))\n"
        "names = ('sources.whoami', 'changes.rewrite', 'sources.forward', 'guards.tsig')\n"
        "print([name for name in names if f'kdns.plugins.{name}' in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "['sources.whoami']\n"
