"""Makes an environment with kdns: `python3 -m tools.environment FOLDER [EXTRA]`, with any Python 3.

Without EXTRA it has what kdns needs to run; `dev` is what tests and checks need too.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

CONSTRAINTS = Path("constraints.txt")
"""Pins every package of a new environment."""
RUNTIME = 55
"""About so many packages are needed to run."""
EVERY = 25
"""Packages between two lines, where no terminal shows each of them."""
ERASE = "\r\x1b[K"


def main(folder: Path, extra: str = "") -> int:
    """Create the environment and install into it; the exit code of what failed."""
    if sys.version_info < (3, 11):  # noqa: UP036 - this is where it is said
        say(f"Python 3.11 or later is required, got {sys.version.split()[0]}; use `make PYTHON=FILE`\n")
        return 1
    total = sum("==" in line for line in CONSTRAINTS.read_text(encoding="utf-8").splitlines()) if extra else RUNTIME
    packages = f"up to {total} packages for its tests" if extra else f"the {total} packages that it needs"
    say(f"Installing kdns and {packages} into {folder}.\n")
    venv = subprocess.run([sys.executable, "-m", "venv", str(folder)], check=False)  # noqa: S603 - what make was told
    if venv.returncode:
        return venv.returncode  # it said why
    options = (
        "--disable-pip-version-check",
        "--progress-bar",
        "off",
        "-c",
        str(CONSTRAINTS),
        "-e",
        f".[{extra}]" if extra else ".",
    )
    command = [str(folder / "bin" / "pip"), "install", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as pip:  # noqa: S603 - of the new environment
        for text in progress(pip.stdout or (), total, is_terminal=sys.stdout.isatty()):
            say(text)
    if not pip.returncode:
        say(f"Done: kdns is {folder / 'bin' / 'kdns'}.\n")
    return pip.returncode


def progress(lines: Iterable[str], total: int, *, is_terminal: bool) -> Iterator[str]:
    """What pip's output is shown as: on a terminal each step in place of the one before, elsewhere a few lines."""
    count, last = 0, ""
    for line in lines:
        verb, _, rest = line.strip().partition(" ")
        if verb == "Collecting":
            count += 1
            text = f"  package {count} of {total}: {rest.partition(' ')[0]}"
        elif verb in ("Building", "Installing"):
            text = f"  {verb.lower()} {rest.partition(':')[0]}"
        else:
            continue
        if text == last:  # pip says that it has started, and that it has finished
            continue
        last = text
        if is_terminal:
            yield ERASE + text
        elif verb != "Collecting" or count % EVERY == 0:
            yield f"{text}\n"
    if is_terminal:
        yield ERASE


def say(text: str) -> None:
    """Print it at once."""
    sys.stdout.write(text)
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), *sys.argv[2:]))
