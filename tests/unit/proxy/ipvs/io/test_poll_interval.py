"""How often the kernel is compared with what it should have."""

import pytest

from kdns.proxy.ipvs.io.poll_interval import BACKOFF_FACTOR, MAX_PAUSE_S, POLL_S, PollInterval


class Clock:
    """Shows a time that tests set."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.mark.parametrize(
    ("took_s", "pause_s"),
    [(0.001, POLL_S), (0.02, 0.02 * BACKOFF_FACTOR), (0.04, 0.04 * BACKOFF_FACTOR), (1.0, MAX_PAUSE_S)],
)
def test_what_takes_long_comes_less_often(took_s: float, pause_s: float) -> None:
    cpu = Clock()
    poll_interval = PollInterval(cpu_s=cpu)

    def compare() -> str:
        cpu.now_s += took_s
        return "gone"

    assert poll_interval.cheap(compare) == "gone"
    assert poll_interval.pause_s == pytest.approx(pause_s)


def test_what_is_expensive_has_a_pause_of_its_own() -> None:
    now, cpu = Clock(), Clock()
    poll_interval, calls = PollInterval(now, cpu), list[float]()

    def compare() -> str:
        calls.append(now.now_s)
        cpu.now_s += 0.1
        return ""

    for second in range(45):
        now.now_s = float(second)
        poll_interval.thorough(compare)
    assert calls == [0.0, 20.0, 40.0]
    assert poll_interval.pause_s == POLL_S
