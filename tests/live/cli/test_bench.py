"""The programs of bench/ work: each prints a row of its table for a cluster that is as small as can be.

Those that start many servers are asked for their help only, which imports all that they need.
"""

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from _process import descendants
from kdns_process import DEADLINE_S, ROOT

pytestmark = pytest.mark.release
BENCH = ROOT / "bench"
ROW = re.compile(r"^\| [^|-].*\d", re.MULTILINE)
SMALL = {
    "change_latency": ("--changes 2 --services 2", ()),
    "dns_sizes": ("10 --seconds 0.05 --rounds 1", ("dnsperf", "knotd")),
    "node_rules": ("20 --modes nftables --changes 2 --alone", ("root", "unshare", "nft")),
    "packets": ("--packets 200", ()),
    "relay": ("--seconds 0.05 --rounds 1 --peers none", ()),
}
"""Program → arguments, and what it needs of the machine."""
PROGRAMS = sorted(path.stem for path in BENCH.glob("[a-z]*.py"))


@pytest.mark.parametrize("name", SMALL)
def test_a_program_prints_figures(name: str) -> None:
    arguments, needs = SMALL[name]
    missing = [each for each in needs if not (os.geteuid() == 0 if each == "root" else shutil.which(each))]
    if missing:
        pytest.skip(f"bench/{name}.py needs {', '.join(missing)}")
    done = ran(name, *arguments.split())
    assert done.returncode == 0, done.stdout + done.stderr
    assert ROW.search(done.stdout) or name == "packets", done.stdout


@pytest.mark.parametrize("name", [program for program in PROGRAMS if program not in SMALL])
def test_a_program_says_how_it_is_used(name: str) -> None:
    done = ran(name, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("usage:")


@pytest.mark.parametrize("argv", ["change_latency.py", "suite.py change_latency --"])
def test_a_program_that_is_stopped_leaves_no_servers(argv: str) -> None:
    program, _, given = argv.partition(" ")
    environ = {**os.environ, "PYTHONUNBUFFERED": "1"}
    argument_list = [sys.executable, str(BENCH / program), *given.split(), "--changes", "1000000"]
    with subprocess.Popen(argument_list, env=environ, stdout=subprocess.PIPE, text=True) as stopped:
        assert any(line.startswith("| change") for line in stopped.stdout or ())
        started = {pid: Path(f"/proc/{pid}") for pid in descendants(stopped.pid)}
        stopped.terminate()
        stopped.communicate(timeout=DEADLINE_S)
    deadline_s = time.monotonic() + DEADLINE_S
    while left := [pid for pid, process in started.items() if process.exists()]:
        if time.monotonic() > deadline_s:
            for pid in left:
                os.kill(pid, 9)
            pytest.fail(f"{len(left)} of {len(started)} processes were left")
        time.sleep(0.01)


def ran(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    program = [sys.executable, str(BENCH / f"{name}.py"), *arguments]
    return subprocess.run(program, cwd=Path(BENCH), capture_output=True, text=True, timeout=DEADLINE_S, check=False)
