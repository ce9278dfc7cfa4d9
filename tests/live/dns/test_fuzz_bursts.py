"""The fuzzer of the compiled reader runs for some seconds, and finds what is planted."""

import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tools.fuzz_bursts.__main__ import SOURCE, libasan

pytestmark = [
    pytest.mark.release,
    pytest.mark.skipif(
        not (
            shutil.which("gcc")
            and Path(libasan()).is_file()
            and Path(sysconfig.get_paths()["include"], "Python.h").is_file()
        ),
        reason="no C compiler with sanitizers, or no headers of Python",
    ),
]


def fuzzed(source: Path, seconds: int) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tools.fuzz_bursts", "--seconds", str(seconds), "--source", str(source)]
    return subprocess.run(command, cwd=SOURCE.parents[4], capture_output=True, text=True, check=False, timeout=1200)


def test_it_finds_nothing_in_the_code() -> None:
    run = fuzzed(SOURCE, 60)
    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout.endswith("no finding\n")


@pytest.mark.parametrize(
    ("right", "wrong", "said"),
    [
        ("size - ID);\n    if (!key)", "size - ID - 6);\n    if (!key)", "AddressSanitizer: heap-buffer-overflow"),
        ("<= 'Z'", "< 'Z'", "finding in world"),
        ("Py_XDECREF(bodies);\n    return failed", "return failed", "finding in world"),
        (
            "b->bodies[out] = body;\n        body = NULL",
            "b->bodies[out] = body",
            "AddressSanitizer: heap-use-after-free",
        ),
        ("unsent += send_answers", "send_answers", "finding in world"),
    ],
)
def test_it_finds_a_defect(tmp_path: Path, right: str, wrong: str, said: str) -> None:
    text = SOURCE.read_text(encoding="utf-8")
    assert text.count(right) == 1
    source = tmp_path / "_burst.c"
    source.write_text(text.replace(right, wrong), encoding="utf-8")
    run = fuzzed(source, 900)  # it ends with the first finding, within a second of CPU or some
    assert run.returncode != 0
    assert said in run.stdout + run.stderr
