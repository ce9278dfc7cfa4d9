"""A mode is a room and a row: everything knows an invented one, from tests/support/sixth_mode."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SUPPORT = Path(__file__).parents[2] / "support"
CLUSTER = str(SUPPORT.parent / "golden" / "trace_cluster.yaml")
EXAMPLES = str(Path(__file__).parents[3] / "examples")
FILE = """\
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: sixth
clusterCIDR: 10.0.0.0/8
nodePortAddresses: [primary]
sixth:
  masqueradeBit: 40
  greeting: boo
  greting: x
  syncPeriod: 1
"""
WEB = ["--manifests", CLUSTER, "--node", "n1", "--from", "192.0.2.7", "--to", "web:80"]
REDIS = ["--manifests", EXAMPLES, "--from", "192.0.2.7", "--to"]


def started(module: str, *arguments: str, text: str = "") -> str:
    """What a module says, which ends well."""
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        input=text,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": f"{SUPPORT}:{SUPPORT.parents[1]}"},
    )
    return done.stdout


def ran(*lines: tuple[list[str], str]) -> list[tuple[int, str]]:
    """The exit codes of command lines with their inputs, and what they say."""
    return [(code, said) for code, said in json.loads(started("sixth_mode", text=json.dumps(lines)))]


def test_check_has_its_section() -> None:
    ((code, said),) = ran((["check", "-"], FILE))
    lines = [line.removeprefix("Warning: ").removeprefix("<stdin>:").removeprefix("-:") for line in said.splitlines()]
    assert (code, sorted(lines)) == (
        2,
        sorted(
            [
                "7: sixth.masqueradeBit: Invalid value: 40: must be within the range [0, 31]",
                '8: sixth.greeting: Invalid value: "boo": must be friendly',
                "9: sixth.greting: is ignored, there is no such field; did you mean greeting?",
                "10: sixth.syncPeriod: expected a duration such as 30s or 1h30m, got 1",
            ]
        ),
    )


PROXY = ["proxy", "--proxy-mode", "sixth", "--nodeport-addresses", "primary", "--cluster-cidr", "10.0.0.0/8"]
WRITTEN = ["--write-config-to", "FILE"]
LINES: list[tuple[list[str], int, str]] = [
    ([*PROXY, *WRITTEN], 0, "mode: sixth"),
    ([*PROXY, "--sixth-greeting", "hi", *WRITTEN], 0, "greeting: hi"),
    ([*PROXY, "--masquerade-all", *WRITTEN], 0, "sixth:\n  greeting: hello\n  masqueradeAll: true"),
    ([*PROXY, "--iptables-sync-period", "5s", *WRITTEN], 0, "minSyncPeriod: 1s\n  syncPeriod: 5s\nudpIdleTimeout"),
    ([*PROXY, "--sixth-greeting", "boo"], 2, '--sixth-greeting: Invalid value: "boo": must be friendly'),
    (["proxy", "--proxy-mode", "seventh"], 2, "must be iptables, ipvs, kernelspace, nftables, sixth, userspace"),
    (["proxy", "--help"], 0, "kernelspace or sixth."),
    (["render", "--proxy-mode", "sixth", "--manifests", EXAMPLES], 0, "hello, default/redis-master"),
    (["render", "--proxy-mode", "sixth", "--sixth-greeting", "hi", "--manifests", EXAMPLES], 0, "hi, default/"),
    (["render", "--sixth-greeting", "hi", "--manifests", EXAMPLES], 2, "is for mode sixth, not nftables"),
    (["trace", "--proxy-mode", "sixth", *REDIS, "10.96.0.11:6379"], 0, "in mode sixth: forwarded to"),
    (["trace", "--proxy-mode", "sixth", *WEB], 0, "one of 2 endpoints, by a sixth sense: "),
    (["up", "--help"], 0, "kernelspace|sixth]"),
]  # fmt: skip
"""(command line, exit code, what it says or writes to FILE)."""


def test_the_command_line_has_its_flags_and_rules(tmp_path: Path) -> None:
    files = [str(tmp_path / str(number)) for number in range(len(LINES))]
    lines = [
        ([file if word == "FILE" else word for word in arguments], "")
        for file, (arguments, _, _) in zip(files, LINES, strict=True)
    ]
    for file, (found, said), (arguments, code, says) in zip(files, ran(*lines), LINES, strict=True):
        text = Path(file).read_text() if Path(file).exists() else said
        assert (found, says in text) == (code, True), (arguments, text)


INSTEAD = "mode userspace takes the place of mode sixth: mode sixth cannot work here: nobody is to be greeted"


@pytest.mark.parametrize(
    ("greeting", "says"),
    [
        ("hello", "mode sixth \nremoved greeting 2\nleft greeting 1\nremoved by --cleanup greeting 1\npage sixth\n"),
        ("bye", f"mode userspace {INSTEAD}\n"),
    ],
)  # fmt: skip
def test_a_node_starts_it_and_removes_what_it_leaves(greeting: str, says: str) -> None:
    assert started("sixth_mode.on_a_node", greeting) == says


def test_the_table_of_the_documentation_has_a_column_for_it() -> None:
    said = started("sixth_mode.table")
    assert said.splitlines()[0].endswith("| `kernelspace` | `sixth` |")
