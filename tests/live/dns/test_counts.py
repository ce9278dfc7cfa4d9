"""What metrics count while dnsperf asks is what dnsperf counted."""

import asyncio
import re
import shutil
from collections import Counter
from pathlib import Path

import pytest
from dns_live import api_of, cluster, page, port_of, serving
from prometheus_client.parser import text_string_to_metric_families
from real_servers import resolver

FORWARDED = """
forward . {upstream}
cache 30 {{
    disable success cluster.local
    disable denial cluster.local
}}
loadbalance
"""
RECORDS = [f"n{number}.outside.example. 300 IN A 198.51.100.{number}" for number in range(100)]
ASKED = [
    *(f"s{number % 30}.default.svc.cluster.local {qtype}" for number in range(1000) for qtype in ("A", "AAAA")),
    *(f"s{number}.example.default.svc.cluster.local A" for number in range(500)),
    *(f"n{number % 150}.outside.example {qtype}" for number in range(2000) for qtype in ("A", "TXT")),
]
FORWARDED_ONCE = sorted({line for line in ASKED if "outside" in line})
"""Asked before all others: a question that waits for the same one's answer would be a miss, and not be forwarded."""


async def sums(server: object, *names: str) -> dict[str, Counter[str]]:
    """For each family, its samples by `rcode`."""
    _, text = await page(server, "/metrics")  # type: ignore[arg-type]
    found: dict[str, Counter[str]] = {name: Counter() for name in names}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name in found:
                found[sample.name][sample.labels.get("rcode", "")] += int(sample.value)
    return found


async def test_metrics_count_what_dnsperf_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = shutil.which("dnsperf")
    if program is None:
        pytest.skip("dnsperf is not here: tests/install-debian-packages says how to get it")
    for name, lines in (("once", FORWARDED_ONCE), ("asked", ASKED)):
        (tmp_path / name).write_text("\n".join(lines) + "\n")
    with resolver(tmp_path, *RECORDS) as upstream:
        async with (
            api_of(cluster()) as api,
            serving(api.url, monkeypatch, more=FORWARDED.format(upstream=upstream)) as server,
        ):
            common = program, "-s", "127.0.0.1", "-p", str(port_of(server)), "-t", "20", "-q", "50"
            first = await asyncio.create_subprocess_exec(
                *common, "-d", "once", "-n", "1", cwd=tmp_path, stdout=asyncio.subprocess.PIPE
            )
            reports = [(await first.communicate())[0].decode()]
            dnsperf = await asyncio.create_subprocess_exec(
                *common, "-d", "asked", "-n", "3", cwd=tmp_path, stdout=asyncio.subprocess.PIPE
            )
            done = asyncio.create_task(dnsperf.communicate())
            before = 0
            while not done.done():
                await asyncio.wait((done,), timeout=0.1)
                counted = (await sums(server, "coredns_dns_requests_total"))["coredns_dns_requests_total"][""]
                assert counted >= before
                before = counted
            reports.append((await done)[0].decode())
            names = ("coredns_dns_requests_total", "coredns_dns_responses_total")
            cached = ("coredns_cache_requests_total", "coredns_cache_hits_total", "coredns_cache_misses_total")
            samples = await sums(server, *names, *cached, "coredns_proxy_request_duration_seconds_count")
    report = "\n".join(reports)
    completed = sum(map(int, re.findall(r"Queries completed: +(\d+)", report)))
    rcodes = Counter[str]()
    for rcode, count in re.findall(r"([A-Z]+) (\d+) \(", report):
        rcodes[rcode] += int(count)
    assert completed == 3 * len(ASKED) + len(FORWARDED_ONCE), report
    assert samples["coredns_dns_requests_total"] == Counter({"": completed})
    assert samples["coredns_dns_responses_total"] == rcodes
    outside = 3 * sum("outside" in line for line in ASKED) + len(FORWARDED_ONCE)
    hits, misses = samples["coredns_cache_hits_total"][""], samples["coredns_cache_misses_total"][""]
    forwarded = sum(samples["coredns_proxy_request_duration_seconds_count"].values())
    assert forwarded == len(FORWARDED_ONCE) == 300  # A and TXT of 150 names
    assert samples["coredns_cache_requests_total"] == Counter({"": completed})
    assert (hits, misses) == (outside - forwarded, completed - hits)
