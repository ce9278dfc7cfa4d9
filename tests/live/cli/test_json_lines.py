"""With --log-format json every line is an object, whatever a command has to say, on both outputs."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from kdns_process import DEADLINE_S

COREFILE = """.:0 {
    bind 127.0.0.1
    health 127.0.0.1:0
    log
    errors
    whoami
}
"""
SETTINGS = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n"
UP = ["up", "--dns", "127.0.0.1:0", "--api", "127.0.0.1:0", "web.yaml"]
SERVICE = "{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {selector: {app: a}, ports: [{port: 80}]}}"


def lines(text: str) -> list[dict[str, Any]]:
    """The objects of an output, one a line; each has what every line has."""
    found = [json.loads(line) for line in text.splitlines()]
    assert all(line.keys() >= {"timestamp", "level", "event"} for line in found)
    return found


@pytest.mark.parametrize(
    ("command", "starts"),
    [
        (["serve", "--conf", "Corefile"], ["dns 127.0.0.1:", "http http://127.0.0.1:", "ready"]),
        (UP, ["api http://", "metrics http://", "manifests 1 object from web.yaml", "dns 127.0.0.1:", "kubeconfig "]),
    ],
)
def test_a_command_that_runs_on(tmp_path: Path, command: list[str], starts: list[str]) -> None:
    (tmp_path / "Corefile").write_text(COREFILE)
    (tmp_path / "web.yaml").write_text(SERVICE)
    argv = [sys.executable, "-m", "kdns", "--log-format", "json", "--log-level", "debug", *command]
    with subprocess.Popen(argv, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout
        said = []
        for line in process.stdout:
            said.append(line)
            if lines(line)[0]["event"] == "ready":
                process.terminate()
                break
        out, err = process.communicate(timeout=DEADLINE_S)
    events = [line["event"] for line in lines("".join(said) + out)]
    assert all(any(event.startswith(start) for event in events) for start in starts), events
    lines(err)


@pytest.mark.parametrize(
    ("command", "code", "says"),
    [
        (["serve", "--conf", "none"], 2, ["error none: cannot be read"]),
        (["serve", "--port"], 2, ["error No such option '--port'"]),
        ([*UP[:-1], "none.yaml"], 2, ["error none.yaml: no such file or folder"]),
        (
            ["proxy", "--config", "ignored.conf", "--master", "not an address", "--init-only=1", "--cleanup=x"],
            2,
            ['error invalid argument "x" for "--cleanup" flag'],
        ),
        (
            ["trace", "--config", "ignored.conf", "--manifests", "web.yaml", "--from", "192.0.2.7", "--to", "web:80"],
            0,
            ["warning ignored.conf:1: clusterCIDR: is unset", "warning ignored.conf:3: resourceContainer: is ignored"],
        ),
    ],
)
def test_a_command_that_ends(tmp_path: Path, command: list[str], code: int, says: list[str]) -> None:
    (tmp_path / "web.yaml").write_text(SERVICE)
    (tmp_path / "ignored.conf").write_text(f"{SETTINGS}resourceContainer: /a\n")
    argv = [sys.executable, "-m", "kdns", "--log-format", "json", *command]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert done.returncode == code, done.stderr
    said = [f"{line['level']} {line['event']}" for line in lines(done.stderr) if line["event"] != "reading manifests"]
    assert [line[: len(start)] for line, start in zip(said, says, strict=True)] == says
