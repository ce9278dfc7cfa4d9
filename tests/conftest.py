"""What all tests share: hypothesis does not judge speed, the machine may be busy, and repeats its examples each time.

`pytest --hypothesis-profile=explore` takes others, and many more.
"""

import gc
import os
import signal
import time
from collections import Counter
from collections.abc import Generator, Iterator, MutableMapping
from itertools import dropwhile, pairwise
from typing import Any

import pytest
import structlog
from hypothesis import settings
from recorded_cases import FOLDER
from structlog.testing import capture_logs

settings.register_profile("kdns", deadline=None, derandomize=True, max_examples=25)
settings.register_profile("release", deadline=None, derandomize=True, max_examples=100)
settings.register_profile("explore", deadline=None, max_examples=1000)
settings.load_profile("kdns")

LONGEST = ("tests/kernel/", "tests/netns/", "tests/live/apiserver/test_store_kill.py")
"""Where tests take ten seconds and more."""

OF_THE_MACHINE = (
    *(
        "COLUMNS",
        "FORCE_COLOR",
        "NO_COLOR",
        "PAGER",
        "KUBECONFIG",
        "KUBERNETES_SERVICE_HOST",
        "KUBERNETES_SERVICE_PORT",
    ),
    *("ALL_PROXY", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "all_proxy", "http_proxy", "https_proxy", "no_proxy"),
)
"""Variables that programs obey, and whose values no test made."""
for _name in OF_THE_MACHINE:
    os.environ.pop(_name, None)
os.environ |= {"LC_ALL": "C.UTF-8", "TZ": "UTC"}
time.tzset()

for _number in (signal.SIGINT, signal.SIGHUP):
    if (
        signal.getsignal(_number) is signal.SIG_IGN
    ):  # by nohup, or the shell of a job: what tests start would ignore it too
        signal.signal(_number, signal.SIG_DFL)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Three processes for each processor: tests with packets and other kernels wait more than half of their time."""
    return 3 * len(os.sched_getaffinity(0))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Garbage collections would visit all modules and tests again and again, now and in each test."""
    gc.disable()
    result = yield
    gc.enable()
    gc.freeze()
    return result


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Each process begins with its share of the longest tests: one that begins last would keep all others waiting.

    xdist gives each process as many neighbours of the list, and later what others have not begun.
    """
    processes: int = getattr(config, "workerinput", {}).get("workercount", 1)
    if processes > 1:
        longest = [item for item in items if item.nodeid.startswith(LONGEST)]
        others = [item for item in items if not item.nodeid.startswith(LONGEST)]
        shares = [len(others) * number // processes for number in range(processes + 1)]
        items[:] = [
            item
            for number, (begin, end) in enumerate(pairwise(shares))
            for item in (*longest[number::processes], *others[begin:end])
        ]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Says how many recorded cases kdns answers as recorded, by file, with what else their tests print."""
    counts: dict[str, Counter[str]] = {}
    printed: list[str] = []
    for outcome, said in (("passed", "passed"), ("xfailed", "known deviations"), ("failed", "failed")):
        for report in terminalreporter.stats.get(outcome, ()):
            if report.nodeid.startswith("tests/conformance/") and report.when == "call":
                counts.setdefault(report.nodeid.partition("::")[0], Counter())[said] += 1
                printed += dropwhile(lambda line: "-cases.json" not in line, report.capstdout.splitlines())
    for file, by_outcome in sorted(counts.items()):
        terminalreporter.write_line(f"{file}: {', '.join(f'{count} {said}' for said, count in by_outcome.items())}")
    for line in printed:
        terminalreporter.write_line(line)
    if not FOLDER.exists():
        terminalreporter.write_line(f"The recorded cases are not at {FOLDER}: their tests are skipped.")


@pytest.fixture(autouse=True)
def _default_logs() -> None:
    """No test meets the log settings that another test made."""
    structlog.reset_defaults()


@pytest.fixture(scope="session", autouse=True)
def _own_machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test reads the resolvers of the machine, or the kubeconfig of who runs it."""
    folder = tmp_path_factory.mktemp("machine")
    (folder / "resolv.conf").write_text("nameserver 192.0.2.53\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kdns.apps.resolvers.RESOLV_CONF", folder / "resolv.conf")
        patch.setenv("HOME", str(folder))
        yield


@pytest.fixture
def logs() -> Iterator[list[MutableMapping[str, Any]]]:
    """What is logged from here on, line by line."""
    with capture_logs() as captured:
        yield captured
