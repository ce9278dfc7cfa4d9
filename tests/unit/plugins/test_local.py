"""`local`: which names count as those of this machine."""

import pytest
from dns_chain import FakeWorld, ask
from harness import server_of


@pytest.mark.parametrize(
    ("name", "options", "rcode", "count"),
    [
        ("localhost.", "", "NOERROR", 0),
        ("a.localhost.", "", "NOERROR", 1),
        ("localhost.example.", "", "NOERROR", 1),
        ("a.localhost.", " {\nlocalhost_prefix off\n}", "NOERROR", 1),
        ("localhost.example.", " {\nlocalhost_prefix off\n}", "SERVFAIL", 0),
        ("example.", "", "SERVFAIL", 0),
    ],
)
async def test_names_beside_localhost_are_counted(name: str, options: str, rcode: str, count: int) -> None:
    world = FakeWorld()
    server = server_of(f"local{options}", world)
    answered = await ask(server, name)
    for partition in server.table.partitions.values():
        partition.totals()
    assert answered.rcode == rcode
    assert sum(sample.value for sample in world.counted["coredns_local_localhost_requests"].samples()) == count
