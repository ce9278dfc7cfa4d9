"""`rrl`: the balance of accounts over time, which responses share one, what slips through, and bounds."""

import pytest
from dns_chain import FakeWorld, plugin_of, read, wire
from harness import server_of

from kdns.answers.chain import Reply, Request, ServeResult
from kdns.answers.response import Response
from kdns.dns.message import query
from kdns.dns.query import TC
from kdns.dns.rrset import RRset, Soa
from kdns.dns.types import NOERROR, NS, NXDOMAIN, SERVFAIL, SOA, A
from kdns.plugins.guards import rrl
from kdns.values import evolve

ANSWER = Response(NOERROR, answer=(RRset("a.example.org.", A, 5, (bytes(4),)),))
ZONE_SOA = RRset("example.org.", SOA, 5, (Soa("ns.", "admin.", 1, 2, 3, 4, 5),))
ABSENT = Response(NXDOMAIN, authority=(ZONE_SOA,))
EMPTY = Response(NOERROR, authority=(ZONE_SOA,))
REFERRAL = Response(NOERROR, authority=(RRset("sub.example.org.", NS, 5, ("ns.",)),))
FAILED = Response(SERVFAIL)
NOTHING = Response(NOERROR)
WILD = evolve(ANSWER, wildcard="*.example.org.")


class Limited:
    """The directive in front of one reply."""

    def __init__(self, options: str) -> None:
        self.setup = FakeWorld()
        self.plugin = plugin_of(rrl.Rrl, f"rrl {{\n{options}\n}}", self.setup, "example.org")

    def __call__(
        self,
        reply: Reply,
        now_s: float = 0.0,
        client: str = "192.0.2.1",
        name: str = "a.example.org.",
        transport: str = "udp",
    ) -> str:
        """sent, cut or dropped."""
        request = Request(read(query(name, A)), (client, 53), transport=transport, received_s=now_s)
        got: ServeResult = self.plugin.serve(request, lambda _request: reply)
        assert got is None or isinstance(got, Response)
        if got is None:
            return "dropped"
        return "cut" if got.flags & TC else "sent"

    @property
    def exceeded(self) -> dict[str, float]:
        found = {name.split("_")[2]: family.samples()[0].value for name, family in self.setup.counted.items()}
        return {name: value for name, value in found.items() if value}


def test_a_second_of_allowance_may_come_at_once_and_is_credited_by_the_clock() -> None:
    limited = Limited("responses-per-second 4")
    assert [limited(ANSWER) for _ in range(6)] == ["sent"] * 4 + ["dropped"] * 2
    assert [limited(ANSWER, 0.5) for _ in range(2)] == ["dropped", "dropped"]  # half a second's credit was owed
    assert limited(ANSWER, 1.5) == "sent"
    assert [limited(ANSWER, 100) for _ in range(5)] == ["sent"] * 4 + ["dropped"]
    assert limited.exceeded == {"responses": 5}


def test_debt_ends_with_the_window() -> None:
    limited = Limited("responses-per-second 1\nwindow 3")
    for _ in range(1000):
        limited(ANSWER)
    assert [limited(ANSWER, now_s) for now_s in (3.9, 8.0)] == ["dropped", "sent"]


@pytest.mark.parametrize(
    ("first", "second", "is_shared"),
    [
        ((ANSWER, "a.example.org.", "192.0.2.1"), (ANSWER, "a.example.org.", "192.0.2.99"), True),
        ((ANSWER, "a.example.org.", "192.0.2.1"), (ANSWER, "a.example.org.", "192.0.3.1"), False),
        ((ANSWER, "a.example.org.", "192.0.2.1"), (ANSWER, "b.example.org.", "192.0.2.1"), False),
        ((ANSWER, "a.example.org.", "192.0.2.1"), (EMPTY, "a.example.org.", "192.0.2.1"), False),
        ((EMPTY, "a.example.org.", "192.0.2.1"), (EMPTY, "b.example.org.", "192.0.2.1"), True),
        ((NOTHING, "a.example.org.", "192.0.2.1"), (NOTHING, "b.example.org.", "192.0.2.1"), True),
        ((WILD, "a.example.org.", "192.0.2.1"), (WILD, "b.example.org.", "192.0.2.1"), True),
        ((WILD, "a.example.org.", "192.0.2.1"), (ANSWER, "b.example.org.", "192.0.2.1"), False),
        ((REFERRAL, "a.sub.example.org.", "192.0.2.1"), (REFERRAL, "b.sub.example.org.", "192.0.2.1"), True),
        ((ABSENT, "a.example.org.", "192.0.2.1"), (ABSENT, "b.example.org.", "192.0.2.1"), True),
        ((FAILED, "a.example.org.", "192.0.2.1"), (FAILED, "b.example.org.", "192.0.2.1"), True),
        ((ANSWER, "a.example.org.", "fd00::1"), (ANSWER, "a.example.org.", "fd00::ff:0:0:0:1"), True),
        ((ANSWER, "a.example.org.", "fd00::1"), (ANSWER, "a.example.org.", "fd00:0:0:100::1"), False),
        ((ANSWER, "a.example.org.", "192.0.2.1"), (ANSWER, "a.example.org.", "::ffff:192.0.2.1"), True),
    ],
)
def test_who_shares_an_account(
    first: tuple[Response, str, str], second: tuple[Response, str, str], *, is_shared: bool
) -> None:
    limited = Limited("responses-per-second 1")
    (reply, name, client), (other, other_name, other_client) = first, second
    assert limited(reply, client=client, name=name) == "sent"
    assert limited(other, client=other_client, name=other_name) == ("dropped" if is_shared else "sent")


@pytest.mark.parametrize(
    ("option", "reply"),
    [("nodata", EMPTY), ("nxdomains", ABSENT), ("referrals", REFERRAL), ("errors", FAILED), ("responses", ANSWER)],
)
def test_each_kind_has_its_allowance(option: str, reply: Response) -> None:
    replies = (EMPTY, ABSENT, REFERRAL, FAILED, ANSWER)
    limited = Limited(f"{option}-per-second 1" + ("\nnodata-per-second 0" if option == "responses" else ""))
    for one in replies:
        expected = one is reply or (option == "responses" and one is not EMPTY)
        assert [limited(one), limited(one)] == ["sent", "dropped" if expected else "sent"]


@pytest.mark.parametrize(
    ("options", "got", "exceeded"),
    [
        ("responses-per-second 1\nslip-ratio 1", ["sent", "cut", "cut", "cut", "cut"], {"responses": 4}),
        ("responses-per-second 1\nslip-ratio 2", ["sent", "dropped", "cut", "dropped", "cut"], {"responses": 4}),
        ("responses-per-second 1\nreport-only", ["sent"] * 5, {"responses": 4}),
        ("requests-per-second 2", ["sent"] * 2 + ["dropped"] * 3, {"requests": 3}),
        ("requests-per-second 2\nreport-only", ["sent"] * 5, {"requests": 3}),
        ("responses-per-second 0", ["sent"] * 5, {}),
    ],
)
def test_what_becomes_of_too_much(options: str, got: list[str], exceeded: dict[str, float]) -> None:
    limited = Limited(options)
    assert [limited(ANSWER) for _ in got] == got
    assert limited.exceeded == exceeded


def test_streams_and_other_zones_are_not_limited() -> None:
    limited = Limited("responses-per-second 1\nrequests-per-second 1")
    assert [limited(ANSWER, transport="tcp") for _ in range(3)] == ["sent"] * 3
    assert [limited(ANSWER, name="example.com.") for _ in range(3)] == ["sent"] * 3


def test_accounts_are_bounded_and_forgotten_when_they_say_nothing() -> None:
    accounts = rrl.Accounts(100, 15.0, 0)
    for number in range(1000):
        accounts.debit(number, 1.0, 0.0)
    assert len(accounts) == 100
    assert accounts.debit("new", 1.0, 0.0) == "drop", "a full table limits more, not less"
    assert accounts.debit(5, 1.0, 0.0) == "drop"
    for number in range(200):
        accounts.debit(("later", number), 1.0, 10.0)
    assert accounts.debit(("later", 50), 1.0, 10.0) == "drop"
    assert len(accounts) == 100


def test_a_network_that_fills_the_table_leaves_the_accounts_of_others() -> None:
    """It has its share; what it asks above that is limited in one account."""
    accounts = rrl.Accounts(160, 15.0, 0)
    verdicts = [accounts.debit((b"flood", number), 5.0, 0.0, b"flood") for number in range(1000)]
    assert verdicts.count("send") == 160 // rrl.SHARES + 5
    assert len(accounts) == 160 // rrl.SHARES
    assert [accounts.debit((b"other", 1), 5.0, 0.0, b"other") for _ in range(6)] == ["send"] * 5 + ["drop"]
    for number in range(1000):
        accounts.debit((number.to_bytes(2, "big"), 1), 5.0, 0.0, number.to_bytes(2, "big"))
    assert len(accounts) == 160
    assert [accounts.debit((b"late", number), 5.0, 0.0, b"late") for number in range(9)].count("send") <= 5


MADE_UP = {
    "NODATA": [("a", qtype) for qtype in range(16, 40)],
    "names below a wildcard": [(f"x{number}.w", A) for number in range(40)],
    "names below the wildcard of a CNAME": [(f"x{number}.c", A) for number in range(40)],
    "names below a DNAME": [(f"x{number}.d", A) for number in range(40)],
}


@pytest.mark.parametrize("about", MADE_UP)
async def test_types_and_names_that_a_client_makes_up_share_accounts(about: str) -> None:
    zone = "@ 60 IN SOA ns admin 1 1 1 1 1\na A 192.0.2.1\n*.w A 192.0.2.1\n*.c CNAME a\nd DNAME w\n"
    setup = FakeWorld(files={"db": zone})
    server = server_of("rrl {\nresponses-per-second 5\n}\nfile db example.org", setup)
    await setup.prepared()
    packets = [query(f"{name}.example.org.", qtype) for name, qtype in MADE_UP[about]]
    assert [bool(await wire(server, packet, ("192.0.2.1", 9))) for packet in packets].count(True) == 5
