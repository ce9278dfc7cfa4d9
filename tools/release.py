"""Makes what a release has, in dist/: `python -m tools.release`.

The sdist, the wheel with the compiled part (abi3) and the one without, the chart, the image if podman or docker works
here, and the list of the wheel's packages (CycloneDX). Then the wheel runs the README's first command in an environment
that has nothing else.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import yaml

ROOT: Final = Path(__file__).parents[1]
CONTAINERFILE: Final = ROOT / "deploy" / "Containerfile"
CHART: Final = ROOT / "deploy" / "chart" / "kdns"
FIRST_COMMAND: Final = ("up", "--api", "127.0.0.1:0", "--dns", "127.0.0.1:0", "examples")
"""`make up`, at free ports."""


def main(dist: Path) -> None:
    shutil.rmtree(dist, ignore_errors=True)
    dist.mkdir(parents=True)
    with TemporaryDirectory() as name:
        folder = Path(name)
        wheel = packages(checkout(folder / "source"), dist)
        chart(dist)
        environment = folder / "environment"
        run(sys.executable, "-m", "venv", "--without-pip", environment)
        pip = (sys.executable, "-m", "pip", "--python", environment)
        run(*pip, "install", "-q", "-c", ROOT / "constraints.txt", wheel)
        start(environment / "bin" / "kdns")
        bill(environment, folder / "bom", dist / f"{wheel.stem}.cdx.json")
        image(dist, wheel.name.split("-")[1])
    for path in sorted(dist.iterdir()):
        say(f"{path.stat().st_size:>12,}  {path}")


def checkout(folder: Path) -> Path:
    """The files that git knows or would add, as they are now: nothing that was built before."""
    listed = output("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            copy = folder / name
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, copy)
    return folder


def packages(source: Path, dist: Path) -> Path:
    """Builds the sdist and both wheels; the wheel with the compiled part, or the pure one without a compiler."""
    run(sys.executable, "-m", "build", "--outdir", dist, source)
    (wheel,) = dist.glob("*.whl")
    if wheel.name.endswith("-none-any.whl"):
        say("no wheel with the compiled part: there is no C compiler")
    else:
        run(sys.executable, "-m", "build", "--wheel", "--outdir", dist, source, KDNS_PURE="1")
    return wheel


def chart(dist: Path) -> None:
    version = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))["version"]
    with tarfile.open(dist / f"kdns-chart-{version}.tgz", "w:gz", dereference=True) as archive:
        archive.add(CHART, "kdns")


def start(kdns: Path) -> None:
    """Runs the README's first command until it is ready; AssertionError with what it printed if it ends before."""
    with subprocess.Popen((kdns, *FIRST_COMMAND), cwd=ROOT, env=clean(), stdout=subprocess.PIPE, text=True) as up:  # noqa: S603
        printed: list[str] = []
        for line in up.stdout or ():
            printed.append(line)
            if line == "ready\n":
                up.send_signal(signal.SIGINT)
        if "ready\n" not in printed or up.wait():
            raise AssertionError("".join(printed))
    say(f"{kdns.name} {' '.join(FIRST_COMMAND)}: ready")


def bill(environment: Path, folder: Path, target: Path) -> None:
    """Writes the packages of an environment, by the program that the image is listed by."""
    (program,) = re.findall(r"cyclonedx-bom==\S+", CONTAINERFILE.read_text(encoding="utf-8"))
    run(sys.executable, "-m", "venv", folder)
    run(folder / "bin" / "pip", "install", "-q", program)
    run(folder / "bin" / "cyclonedx-py", "environment", "--output-reproducible", "-o", target, environment)


def image(dist: Path, version: str) -> None:
    for program in ("podman", "docker"):
        if shutil.which(program) and not subprocess.run((program, "info"), capture_output=True, check=False).returncode:  # noqa: S603
            run(program, "build", "-q", "-t", f"kdns:{version}", "-f", CONTAINERFILE, ROOT)
            run(program, "save", "-o", dist / f"kdns-image-{version}.tar", f"kdns:{version}")
            return
    say("no image: neither podman nor docker works here")


def run(*command: str | Path, **environment: str) -> None:
    subprocess.run(command, check=True, cwd=ROOT, env=clean() | environment, stdout=subprocess.DEVNULL)  # noqa: S603


def output(*command: str) -> str:
    return subprocess.run(command, check=True, cwd=ROOT, capture_output=True, text=True).stdout  # noqa: S603


def clean() -> dict[str, str]:
    """The environment without what leads Python to other packages."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(ROOT / "dist")
