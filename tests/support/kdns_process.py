"""Starts kdns's commands as a user does, and talks to them with dig and kubectl."""

import json
import os
import queue
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

DEADLINE_S = 90.0
"""More than anything takes on a machine that is busy elsewhere: it ends a wait, it does not measure."""
ROOT = Path(__file__).parents[2]
WITHOUT_COLLECTION = {"GOGC": "off", "GOMEMLIMIT": "256MiB"}
"""Environment of a Go program that ends before its garbage matters: kubectl takes a quarter less of the processor."""


@dataclass
class Running:
    """A started `kdns up`: its output so far, where it listens, and clients for it."""

    process: subprocess.Popen[str]
    folder: Path
    lines: list[str] = field(default_factory=list)
    _queue: queue.Queue[str] = field(default_factory=queue.Queue)
    _read_all: threading.Event = field(default_factory=threading.Event)

    def wait_for(self, pattern: str) -> re.Match[str]:
        """The first line of the output, from the start, that matches; fails after the deadline."""
        deadline_s = time.monotonic() + DEADLINE_S
        seen = 0
        while time.monotonic() < deadline_s:
            for line in self.lines[seen:]:
                if match := re.search(pattern, line):
                    return match
            seen = len(self.lines)
            try:
                self.lines.append(self._queue.get(timeout=0.1))
            except queue.Empty:
                if self._read_all.is_set() and self._queue.empty():
                    break
        pytest.fail(f"no line like {pattern!r} in:\n{''.join(self.lines)}")

    def dig(self, name: str, qtype: str = "A", *options: str) -> list[str]:
        """The answer section as dig prints it, sorted, one space between fields."""
        if not shutil.which("dig"):
            pytest.skip("dig is not here: tests/install-debian-packages says how to get it")
        port = self.wait_for(r"^dns +127\.0\.0\.1:(\d+)")[1]
        command = ["dig", "@127.0.0.1", "-p", port, name, qtype, "+noall", "+answer", "+timeout=20", *options]
        out = subprocess.run(command, capture_output=True, text=True, check=True, timeout=DEADLINE_S).stdout
        return sorted(" ".join(line.split()) for line in out.splitlines() if line and not line.startswith(";"))

    def kubectl(self, *args: str, stdin: str = "", check: bool = True) -> str:
        """What kubectl prints, standard error included; no flag of kdns's own is needed."""
        if not shutil.which("kubectl"):
            pytest.skip("kubectl is not here: tests/install-debian-packages says how to get it")
        own = {"KUBECONFIG": str(self.folder / "kdns.kubeconfig"), "HOME": str(self.folder)}
        done = subprocess.run(
            ["kubectl", *args],
            input=stdin,
            capture_output=True,
            text=True,
            env={**os.environ, **WITHOUT_COLLECTION, **own},
            timeout=DEADLINE_S,
            check=False,
        )
        assert done.returncode == 0 or not check, f"kubectl {' '.join(args)}: {done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    def read(self, path: str) -> Any:
        """The object, list or Status at a path of the API, as `kubectl get --raw` shows it."""
        return self.send("GET", path)

    def send(self, verb: str, path: str, body: Any = None, content_type: str = "application/json") -> Any:
        """The object, list or Status that a request is answered with, without the price of kubectl."""
        url = self.wait_for(r"^api +(http://\S+)")[1] + path
        sent = None if body is None else json.dumps(body).encode()
        request = Request(url, sent, {"Content-Type": content_type}, method=verb)  # noqa: S310 - the pattern says http
        try:
            with urlopen(request, timeout=DEADLINE_S) as response:  # noqa: S310 - see above
                return json.load(response)
        except HTTPError as error:
            with error:
                return json.load(error)

    def until(self, wanted: list[str], name: str, qtype: str = "A") -> None:
        """Dig until the answer's rdata is as wanted; fails after the deadline."""
        deadline_s = time.monotonic() + DEADLINE_S
        while (got := self.rdata(name, qtype)) != wanted:
            assert time.monotonic() < deadline_s, f"{name} {qtype}: {got}, wanted {wanted}"
            time.sleep(0.02)

    def rdata(self, name: str, qtype: str = "A") -> list[str]:
        """The last fields of the answer's records."""
        return [line.split(None, 4)[4] for line in self.dig(name, qtype)]

    def _read(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            self._queue.put(line)
        self._read_all.set()


@contextmanager
def kdns_up(folder: Path, *args: str, stdin: str = "", status: int = 0) -> Iterator[Running]:
    """`kdns up` on ports of the kernel's choice, ready; stopped, and its exit looked at, behind the block."""
    command = [sys.executable, "-m", "kdns", "up", "--dns", "127.0.0.1:0", "--api", "127.0.0.1:0"]
    command += ["--kubeconfig", str(folder / "kdns.kubeconfig"), *args]
    given = subprocess.PIPE if stdin else None
    process = subprocess.Popen(
        command, cwd=folder, stdin=given, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if process.stdin:
        process.stdin.write(stdin)
        process.stdin.close()
    running = Running(process, folder)
    reader = threading.Thread(target=running._read, daemon=True)  # noqa: SLF001 - its own helper thread
    reader.start()
    try:
        running.wait_for("^ready")
        yield running
    finally:
        process.terminate()
        try:
            code = process.wait(DEADLINE_S)
        finally:
            process.kill()
        reader.join(DEADLINE_S)
        assert process.stdout
        process.stdout.close()
    assert code == status, "".join(running.lines)
