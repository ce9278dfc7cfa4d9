"""The two processes of `kdns up`: DNS does not wait for the control plane, and neither outlives the other."""

import fcntl
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from expecting import until_as
from kdns_process import DEADLINE_S, Running, kdns_up

KUBERNETES = "kubernetes.default.svc.cluster.local"


def control_plane_of(running: Running) -> int:
    """The process id of the control plane."""
    pid = running.process.pid
    (child,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(child)


def is_running(pid: int) -> bool:
    """Whether a process exists and is no zombie."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


def test_dns_answers_while_the_control_plane_does_nothing_and_signals_to_both_are_the_commands(tmp_path: Path) -> None:
    """As a closed terminal or `pkill` sends them: the control plane goes on until it is told to stop."""
    (tmp_path / "a.yaml").write_text("a: [")
    with kdns_up(tmp_path, str(tmp_path / "a.yaml")) as running:
        running.wait_for(r"^Warning: .*a\.yaml:1: not YAML")
        child = control_plane_of(running)
        os.kill(child, signal.SIGSTOP)
        try:
            assert running.rdata(KUBERNETES) == ["10.96.0.1"]
        finally:
            os.kill(child, signal.SIGCONT)
        for number in (signal.SIGUSR1, signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
            os.kill(child, number)
        running.process.send_signal(signal.SIGUSR1)
        running.kubectl("create", "configmap", "a")
    assert not is_running(child)


def test_a_command_that_is_killed_takes_its_control_plane_with_it(tmp_path: Path) -> None:
    with kdns_up(tmp_path, status=-signal.SIGKILL) as running:
        child = control_plane_of(running)
        running.process.kill()
        running.process.wait(DEADLINE_S)
        until_as(False, lambda: is_running(child), "it is there")


def test_a_control_plane_that_is_killed_ends_the_command(tmp_path: Path) -> None:
    with kdns_up(tmp_path, status=1) as running:
        os.kill(control_plane_of(running), signal.SIGKILL)
        running.wait_for("^Error: the process of the control plane ended with SIGKILL")
        running.process.wait(DEADLINE_S)


def test_a_control_plane_that_cannot_start_ends_the_command(tmp_path: Path) -> None:
    missing = str(tmp_path / "missing.yaml")
    command = [sys.executable, "-m", "kdns", "up", missing, "--dns", "127.0.0.1:0", "--api", "127.0.0.1:0"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    said = [line for line in done.stderr.splitlines() if line != "reading manifests"]  # a slow start says so
    assert said == [f"Error: {missing}: no such file or folder"]


def test_a_signal_ends_a_command_whose_control_plane_does_not_start(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "kdns", "up", "--dns", "127.0.0.1:0", "--api", "127.0.0.1:0"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as up:
        deadline_s = time.monotonic() + DEADLINE_S
        while not (children := Path(f"/proc/{up.pid}/task/{up.pid}/children").read_text().split()):
            assert time.monotonic() < deadline_s
            time.sleep(0.01)
        child = int(children[0])
        while b"kdns.apps.control_plane" not in Path(f"/proc/{child}/cmdline").read_bytes():  # until exec, `up` waits
            assert time.monotonic() < deadline_s
            time.sleep(0.01)
        os.kill(child, signal.SIGSTOP)
        up.terminate()
        assert up.wait(DEADLINE_S) == 0
        assert not is_running(child)
        assert up.stdout
        assert up.stdout.read() == ""


def test_warnings_that_nobody_reads_do_not_stop_the_command(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 4096)
    for number in range(100):
        (tmp_path / f"{number}.yaml").write_text("a: [")
    command = [sys.executable, "-m", "kdns", "up", str(tmp_path), "--dns", "127.0.0.1:0", "--api", "127.0.0.1:0"]
    command += ["--kubeconfig", str(tmp_path / "kubeconfig")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=writing, text=True) as up:
        os.close(writing)
        assert up.stdout
        assert "ready\n" in iter(up.stdout.readline, "")
        up.terminate()
        assert up.wait(DEADLINE_S) == 0
    os.close(reading)
