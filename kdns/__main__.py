"""The `kdns` command, also as `python -m kdns`."""

import os
import signal
import sys


def main() -> None:
    """Runs the command line. Its imports take a second; signals are handled during them."""
    _open_standard_streams()
    has_terminal = os.isatty(0)

    def hang_up(number: int, frame: object) -> None:
        if has_terminal and not os.isatty(0):
            _end(number, frame)

    handlers = {"SIGTERM": _end, "SIGINT": _end, "SIGHUP": hang_up, "SIGUSR1": lambda *_: None}
    for name, handler in handlers.items():  # at SIGUSR1 nothing has been read yet that could be read again
        number = getattr(signal, name, None)  # Windows has neither of the last two
        if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, handler)

    from kdns.cli.main import main as command_line  # noqa: PLC0415 - see above

    command_line()


def _open_standard_streams() -> None:
    """Opens /dev/null for each closed stream: its number would be that of a socket or database, and lines go there."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            descriptor = os.open(os.devnull, os.O_RDWR)  # the lowest number that is free
            os.set_inheritable(descriptor, True)
            setattr(sys, name, os.fdopen(descriptor, mode, encoding="utf-8"))


def _end(number: int, _: object) -> None:
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    os._exit(128 + number)  # process 1 of a container has no default action


if __name__ == "__main__":
    main()
