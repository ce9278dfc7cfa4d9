"""`acl`: who is answered, refused, filtered or dropped, and the extended error that says so."""

from dns_chain import Behind, FakeWorld
from harness import Case, cases_of, check_cases, reply_to, server_of, shown

from kdns.answers.response import Response

EDE = 15


async def outcome(case: Case) -> str:
    """What differs from the recorded case."""
    behind = Behind(lambda _request: Response())
    zones = " ".join(case.get("server_zones", ()))
    config = case["config"].replace("acl {", f"acl {zones} {{")  # the query may be for a name outside of the block
    server = server_of(config, FakeWorld(), behind)
    expected = case["expect"]
    query = case["query"] | {"edns": {"udp_size": 1232}}
    if ":" in query["client"]:
        query["client"] = f"[{query['client']}]:40212"
    wire = await reply_to(server, query)
    if expected.get("no_response"):
        return "" if not wire else "a response to what is dropped"
    got = shown(wire)
    ede = [int(text.partition("=")[2][:4], 16) for text in got["options"] if text.startswith(f"{EDE}=")]
    expectation = (expected["rcode"], expected.get("passed", False), [expected["ede"]] if "ede" in expected else [])
    found = (got["rcode"], bool(behind.requests), ede)
    return "" if found == expectation else f"{found}, recorded {expectation}"


async def test_recorded_cases() -> None:
    await check_cases("acl-cases.json", cases_of("acl"), outcome)
