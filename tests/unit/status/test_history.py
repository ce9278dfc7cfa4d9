"""Rates of counters, quantiles of histograms, and plots of both."""

from math import inf

import pytest
from prometheus_client import CollectorRegistry, Counter, Histogram

from kdns.status.history import MAX_SERIES, READINGS, History
from kdns.status.numbers import Numbers, counted
from kdns.status.plot import HEIGHT, LINES, WIDTH, plot, round_up


def test_rates_are_differences_of_counters() -> None:
    history = History()
    for at_s, count in ((0.0, 0.0), (10.0, 50.0), (20.0, 250.0), (20.0, 250.0), (30.0, 0.0), (40.0, 10.0)):
        history.add(at_s, {("rcode", "NOERROR"): count, ("type", "A"): 1.0})
    (line,) = history.lines("rcode")
    assert (line.name, line.rates, line.last) == ("NOERROR", [5.0, 20.0, 0.0, 1.0], 1.0)
    assert history.covered_s == 40.0


def test_a_new_series_begins_at_zero_and_the_busiest_is_first() -> None:
    history = History()
    history.add(0.0, {("rcode", "NOERROR"): 5.0})
    history.add(10.0, {("rcode", "NOERROR"): 15.0, ("rcode", "NXDOMAIN"): 100.0})
    assert [(line.name, line.last) for line in history.lines("rcode")] == [("NXDOMAIN", 10.0), ("NOERROR", 1.0)]


def test_it_is_bounded() -> None:
    history = History()
    for number in range(READINGS + 50):
        history.add(number * 10.0, {("rcode", str(index)): float(index) for index in range(200)})
    lines = history.lines("rcode")
    assert len(lines) == MAX_SERIES
    assert len(lines[0].rates) == READINGS - 1


def test_numbers_are_those_of_a_scrape() -> None:
    registry = CollectorRegistry()
    responses = Counter("coredns_dns_responses", "", ("rcode", "plugin"), registry=registry)
    responses.labels("NOERROR", "kubernetes").inc(3)
    responses.labels("NXDOMAIN", "kubernetes").inc(2)
    responses.labels("NOERROR", "forward").inc()
    times = Histogram("took", "", buckets=(0.1, 1.0), registry=registry)
    numbers = Numbers.of(registry.collect())
    assert numbers.sum("coredns_dns_responses_total") == 6
    assert numbers.by("coredns_dns_responses_total", "plugin") == {"kubernetes": 5, "forward": 1}
    assert numbers.only("coredns_dns_responses_total", "rcode", "NXDOMAIN").by(
        "coredns_dns_responses_total", "plugin"
    ) == {"kubernetes": 2}
    assert dict(counted(numbers)) == {
        ("rcode", "NOERROR"): 4,
        ("rcode", "NXDOMAIN"): 2,
        ("directive", "kubernetes"): 5,
        ("directive", "forward"): 1,
    }
    assert numbers.quantile("took", 0.5) == 0
    for value in (0.05, 0.05, 0.5, 5.0):
        times.observe(value)
    later = Numbers.of(registry.collect())
    assert [later.quantile("took", part) for part in (0.5, 0.75, 1.0)] == [0.1, 1.0, inf]
    times.observe(5.0)
    assert Numbers.of(registry.collect()).quantile("took", 0.5, later) == inf


@pytest.mark.parametrize(
    ("value", "top"), [(0.0, 1.0), (0.03, 0.05), (1.0, 1.0), (1.1, 2.0), (21.0, 50.0), (5001.0, 10_000.0)]
)
def test_the_top_of_a_plot_is_round(value: float, top: float) -> None:
    assert round_up(value) == pytest.approx(top)


def test_a_plot_has_its_points_inside() -> None:
    history = History()
    for number in range(20):
        history.add(
            number * 10.0, {("type", str(index)): float(number * index * 7 % 100 + number * 100) for index in range(9)}
        )
    drawn = plot("Types", history.lines("type"))
    assert len(drawn.lines) == LINES
    for _, _, points in drawn.lines:
        pairs = [tuple(map(float, pair.split(","))) for pair in points.split()]
        assert all(0 <= x <= WIDTH and 0 <= y <= HEIGHT for x, y in pairs)
        assert (pairs[0][0], pairs[-1][0]) == (0, WIDTH)
