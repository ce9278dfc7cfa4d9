"""The recorded cases of dnssec. What it made up is compared by its meaning, and every signature is verified."""

import dns.dnssec
import dns.name
import dns.rrset
from dns_chain import Behind, FakeWorld, read
from harness import Case, check_cases, files_of, packet_of, recorded, reply_to, response_of, server_of, shown, texts

from kdns.answers.chain import Request
from kdns.answers.response import Response
from kdns.dns.names import labels_of
from kdns.dns.types import SERVFAIL
from kdns.plugins.changes.dnssec.keys import read_key
from kdns.plugins.changes.dnssec.plugin import Dnssec

NOW_S = 1_700_000_000.0
DEVIATIONS = {
    "dnssec/TestDelegationSigned/0": "the TTL of a signature is that of what it signs (RFC 4034 §3), not that of NS"
}
SECTIONS = ("answer", "authority")


def meaning(line: str, qtype: str) -> str:
    """A record without times, signature, original TTL and tag, and an NSEC with its next name only.

    The types of an NSEC must not have the one in the question.
    """
    owner, ttl, rclass, rtype, *rdata = line.split()
    if rtype == "RRSIG":
        rdata = [*rdata[:3], rdata[7]]
    if rtype == "SOA":
        rdata = rdata[:1]
    if rtype == "NSEC":
        assert qtype not in rdata[1:] or qtype in {"NSEC", "NS"}
        rdata = [rdata[0].lower()]
    if rtype == "DS":
        rdata[-1] = rdata[-1].lower()
    if rtype == "DNSKEY":
        rdata = [*rdata[:3], rdata[3][:20]]
    return " ".join((owner.lower(), ttl, rclass, rtype, *rdata))


def verified(lines: list[str], keys: list[str]) -> int:
    """How many signatures there are; dnspython's error for one that is not valid."""
    groups: dict[tuple[str, str], list[str]] = {}
    for line in lines:
        owner, _, _, rtype, *rdata = line.split()
        groups.setdefault((owner.lower(), rdata[0] if rtype == "RRSIG" else rtype), []).append(line)
    count = 0
    for (_, rtype), group in groups.items():
        signatures = [line for line in group if line.split()[3] == "RRSIG"]
        others = [line for line in group if line.split()[3] == rtype]
        for line in signatures:
            rrset = dns.rrset.from_text_list(*_head(others[0]), [other.split(None, 4)[4] for other in others])
            rrsig = dns.rrset.from_text_list(*_head(line), [line.split(None, 4)[4]])
            signer = dns.name.from_text(line.split()[11])
            dnskeys = dns.rrset.from_text_list(signer, 3600, "IN", "DNSKEY", keys)
            dns.dnssec.validate_rrsig(rrset, rrsig[0], {signer: dnskeys}, now=NOW_S)
            count += 1
    return count


def _head(line: str) -> tuple[str, int, str, str]:
    owner, ttl, rclass, rtype, _ = line.split(None, 4)
    return owner, int(ttl), rclass, rtype


def message(response: Response) -> Case:
    return {"rcode": "NOERROR" if not response.rcode else str(response.rcode)} | {
        section: texts(getattr(response, section)) for section in SECTIONS
    }


async def reply(case: Case, content: Case, zones: list[str]) -> Case:
    """What kdns makes of the recorded message, or replies to the recorded query."""
    files = files_of(case, content)
    setup = FakeWorld(files=files)
    setup.clock_s = NOW_S
    if case["op"] == "query":
        # the recorded server has a stub behind `file`, which says SERVFAIL
        server = server_of(case["config"], setup, Behind(lambda _request: Response(SERVFAIL)))
        await setup.prepared()
        return shown(await reply_to(server, case["query"], transport="tcp"))
    bases = sorted(name.removesuffix(".key") for name in files if name.endswith(".key"))
    keys = tuple(read_key(files[f"{base}.key"], files[f"{base}.private"]) for base in bases)
    plugin = Dnssec(zones, keys, 100, setup)
    owner = case["in"]["answer"][0].split()[0] if case["in"]["answer"] else case["query"]["name"]
    query = read(packet_of(case.get("query") or {"name": owner, "type": case["in"]["answer"][0].split()[3]}))
    return message(plugin.signed(Request(query), labels_of(case["zone"]), response_of(case["in"])))


def difference(case: Case, got: Case, keys: list[str]) -> str:
    expected, qtype = case["expect"], case.get("query", {}).get("type", "")
    if got["rcode"] != expected["rcode"]:
        return f"rcode {got['rcode']}, recorded {expected['rcode']}"
    for section in SECTIONS:
        have = sorted(meaning(line, qtype) for line in got[section])
        wanted = sorted(meaning(line, qtype) for line in expected[section])
        if have != wanted:
            return f"{section} {have}, recorded {wanted}"
    signatures = sum(line.split()[3] == "RRSIG" for section in SECTIONS for line in got[section])
    return "" if verified([line for section in SECTIONS for line in got[section]], keys) == signatures else "unverified"


async def test_recorded_cases() -> None:
    content = recorded("dnssec")

    async def outcome(case: Case) -> str:
        zones = [case["zone"]] if "zone" in case else []
        if case["id"] == "dnssec/TestSigningCnameCrossZone/0":
            zones.append("example.org.")
        got = await reply(case, content, zones)
        keys = [text.split(None, 3)[3] for name, text in case["files"].items() if name.endswith(".key")]
        return difference(case, got, keys)

    await check_cases("dnssec-cases.json", content["cases"], outcome, DEVIATIONS)
