"""Recorded cases of `tsig`: what has to be signed, and what errors of signatures are answered with."""

from base64 import b64decode

from dns_chain import Behind, FakeWorld, read
from harness import Case, cases_of, check_cases, packet_of, server_of

from kdns.answers.chain import Request
from kdns.answers.response import Response
from kdns.dns.names import labels_of
from kdns.dns.types import OPT, rcode_name
from kdns.dns.wire import records
from kdns.plugins.guards.tsig.plugin import OPCODES
from kdns.plugins.guards.tsig.signature import BADKEY, BADSIG, BADTIME, Signer, tsig_of
from kdns.values import evolve

SECRET = "i9M+00yrECfVZG2qCjr4mPpaGim/Bq+IWMiNrLjUO4Y="  # noqa: S105 - the recorded key
ERRORS = {"BADKEY": BADKEY, "BADSIG": BADSIG, "BADTIME": BADTIME}
NOW_S = 1_800_000_000


def signed(packet: bytes, case: Case) -> bytes:
    """The packet of a case with the signature that it has, right or wrong as the case says."""
    query, expected = case["query"], case["expect"]
    is_valid = query.get("tsig_valid", query.get("tsig_ok", True)) and expected.get("tsig_error") != "BADSIG"
    secret = b64decode(SECRET) if is_valid else b"another"
    signed_s = NOW_S - 3600 if expected.get("tsig_error") == "BADTIME" else NOW_S
    error = BADTIME if case.get("note") == "Client Set Error" else 0
    return Signer(labels_of("test.key."), secret, "hmac-sha256.", lambda: signed_s, error=error)(packet)


def outcome(case: Case) -> str:
    """What differs in the reply to a case's query."""
    query, expected = case["query"], case["expect"]
    setup = FakeWorld(clock_s=NOW_S)

    behind = Behind(lambda _: Response())
    has_key = "secret" in case["config"] or expected.get("tsig_error") == "BADKEY"
    config = case["config"] if has_key else case["config"].replace("{", f"{{\nsecret test.key. {SECRET}", 1)
    server = server_of(config, setup, behind)
    edns = {"edns": {"udp_size": 42, "do": True}} if query.get("additional") else {}
    packet = bytearray(packet_of({**query, **edns}))
    packet[2:4] = OPCODES[query.get("opcode", "QUERY")].to_bytes(2, "big")
    packet_sent = signed(bytes(packet), case) if query["tsig"] else bytes(packet)
    made = read(packet_sent[:2] + b"\0\0" + packet_sent[4:])
    request = Request(evolve(made, packet=packet_sent, flags=int.from_bytes(packet_sent[2:4], "big")))
    plugin, last = server.blocks[0].chain.plugins
    reply = plugin.serve(request, lambda passed: last.serve(passed, lambda _: None))
    assert isinstance(reply, Response)
    if "next_called" in expected:
        if len(behind.requests) != expected["next_called"]:
            return f"passed on {len(behind.requests)} times"
        seen = [record for passed in behind.requests for record in records(passed.query.packet)]
        types = ["OPT" if record.rtype == OPT else "TSIG" for record in seen]
        return "" if types == expected["next_sees_additional_types"] else f"{types}"
    if rcode_name(reply.rcode) != expected["rcode"]:
        return rcode_name(reply.rcode)
    if "tsig_in_reply" in expected and (reply.signer is not None) != expected["tsig_in_reply"]:
        return "signed" if reply.signer else "not signed"
    if "tsig_error" in expected:
        assert reply.signer
        tsig = tsig_of(reply.signer(bytes(packet)))
        assert tsig
        error = ERRORS.get(expected["tsig_error"], 0)
        if tsig.rdata.error != error or len(tsig.rdata.other) != expected["tsig_other_len"]:
            return f"error {tsig.rdata.error}, {len(tsig.rdata.other)} bytes more"
        signed_s = {"client time": NOW_S - 3600}.get(expected["tsig_time_signed"], tsig.rdata.time_signed)
        return "" if tsig.rdata.time_signed == signed_s else f"signed at {tsig.rdata.time_signed}"
    return ""


async def test_recorded_cases() -> None:
    await check_cases("misc-cases.json, tsig", cases_of("misc", "tsig/"), outcome)
