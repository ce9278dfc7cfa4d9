"""The `kdns` command, also as `python -m kdns`."""

import os
import signal


def main() -> None:
    """Run the command line. Its imports take a second, in which signals are acted on too."""
    signal.signal(signal.SIGUSR1, lambda *_: None)  # nothing is read yet that could be read again
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _end)

    from kdns.cli.main import main as command_line  # noqa: PLC0415 - see above

    command_line()


def _end(number: int, _: object) -> None:
    """End by this signal, without a traceback."""
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    os._exit(128 + number)  # process 1 of a container has no default action


if __name__ == "__main__":
    main()
