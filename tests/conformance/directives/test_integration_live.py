"""Recorded cases of whole servers: Corefiles, files, and questions to them over sockets of this machine, in order."""

import asyncio
import re
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from operator import itemgetter
from pathlib import Path

import pytest
from dns_live import dns_server
from harness import SECTIONS, Case, difference, files_of, packet_of, shown
from real_servers import free_ports
from recorded_cases import each_case, recorded

from kdns.dns.encode import Names, encode_section
from kdns.dns.types import SOA
from kdns.dns.wire import records
from kdns.dns.zonefile import parse_record
from kdns.plugins.directives import COREDNS_ONLY

RECORDED = recorded("directives/integration-cases.json")
HOST = "127.0.0.1"
BLOCK = re.compile(r"^(\S.*\{)$", re.MULTILINE)
POLL_S = 0.05
PATIENCE_S = 60.0
"""How long an answer may take to become the recorded one, where files change or zones are transferred."""
LATER = ("write", "secondary", "auto {")

SIGNED = "signed at a time that is over: tests of tsig sign anew"
NO_TTL = "without $TTL the SOA's MINIMUM counts, which CoreDNS takes for 0"
DEVIATIONS = {
    "test/TestAuto/0": NO_TTL,
    "test/TestAutoAXFR/0": NO_TTL,
    "test/TestZoneReload/0": NO_TTL,
    "test/TestChaos/0": "the version is kdns's own",
    "test/TestFileLoop/0": "a CNAME that leads to itself is in the answer once",
    "test/TestFileUpstreamError/0": "the SOA of this zone says nothing of a name outside of it (RFC 2308 §2.1)",
    "test/TestAutoPathErraticNotLoaded/0": "a zone without an SOA at its apex is refused (RFC 1035 §5.2)",
    "test/TestFileCnameOrigin/0": "NS records that are the answer are not repeated in the authority section",
}
"""Case → why kdns differs."""


def corefile_of(text: str, number: int, ports: list[int], folder: Path) -> str:
    """A recorded Corefile on loopback, with the ports of all servers."""
    for index, port in enumerate(ports):
        text = text.replace(f"ADDR_S{index}", f"{HOST}:{port}").replace(f"PORT_S{index}", str(port))
    text = text.replace(":0 {", f":{ports[number]} {{").replace("DIR", str(folder))
    return text if "bind " in text else BLOCK.sub(rf"\1\n    bind {HOST}", text)


@asynccontextmanager
async def serving(case: Case, ports: list[int], folder: Path) -> AsyncIterator[None]:
    """All servers of a case; one that asks another at the start comes first and asks again."""
    async with AsyncExitStack() as stack:
        for number in asked_servers(case):
            corefile = corefile_of(case["servers"][number]["corefile"], number, ports, folder)
            await stack.enter_async_context(dns_server(corefile))
        yield


def asked_servers(case: Case) -> list[int]:
    """Those that the test or another server of it asks."""
    texts = " ".join(server["corefile"] for server in case["servers"])
    asked = {step.get("server", "S0") for step in case["steps"]}
    return [number for number in range(len(case["servers"])) if f"S{number}" in asked or f"_S{number}" in texts]


def question(query: Case) -> bytes:
    """The packet of a recorded query; its authority section too, in which IXFR says what the client has."""
    packet = packet_of(query)
    rrsets = tuple(map(parse_record, query.get("authority", ())))
    if not rrsets:
        return packet
    encoded = encode_section(rrsets, Names(), len(packet))
    return packet[:8] + len(encoded).to_bytes(2, "big") + packet[10:] + b"".join(encoded)


async def exchanged(port: int, packet: bytes, proto: str, client: str) -> list[bytes]:
    """The messages of the response; a whole zone transfer."""
    if proto == "udp":
        loop = asyncio.get_running_loop()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.setblocking(False)
            sock.bind((client, 0))
            sock.connect((HOST, port))
            await loop.sock_sendall(sock, packet)
            async with asyncio.timeout(PATIENCE_S):
                return [await loop.sock_recv(sock, 65535)]
    reader, writer = await asyncio.open_connection(HOST, port)
    messages: list[bytes] = []
    is_transfer = b"\0\xfb\0\1" in packet or b"\0\xfc\0\1" in packet  # IXFR, AXFR
    try:
        writer.write(len(packet).to_bytes(2, "big") + packet)
        async with asyncio.timeout(PATIENCE_S):
            while sum(record.rtype == SOA for message in messages for record in records(message)) < 2:
                messages.append(await reader.readexactly(int.from_bytes(await reader.readexactly(2), "big")))
                is_whole = (
                    messages[0][3] & 15 or messages[0][6:8] == b"\0\1"
                )  # an error, or the SOA of what is up to date
                if not is_transfer or is_whole:
                    break
    finally:
        writer.close()
    return messages


async def step_differs(step: Case, ports: list[int]) -> str:
    """What differs in the response to a question."""
    port = ports[int(step.get("server", "S0").removeprefix("S"))]
    query = step.get("query", {"name": "example.org.", "type": "AXFR"})
    try:
        messages = await exchanged(port, question(query), step.get("proto", "tcp"), query.get("client", HOST))
    except TimeoutError:
        return "no response"
    got = shown(messages[0])
    if "axfr" in step:
        got["answer"] = [line for message in messages for line in shown(message)["answer"]]
        return difference({"answer": step["axfr"]}, got)
    volatile = step.get("volatile", ())
    return difference(step["reply"], got, [section for section in SECTIONS if section not in volatile])


async def case_differs(case: Case, files: dict[str, str], folder: Path) -> str:
    """The first step whose response is not as recorded, "" for none."""
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    ports = [port for port, _ in zip(free_ports(), case["servers"], strict=False)]
    texts = " ".join(server["corefile"] for server in case["servers"])
    changes = any(word in texts or any(word in step for step in case["steps"]) for word in LATER)
    patience_s = PATIENCE_S if changes and case["id"] not in DEVIATIONS else 0.0
    async with serving(case, ports, folder):
        for step in case["steps"]:
            if "write" in step:
                for name, text in step["write"].items():
                    (folder / f"{name}.new").write_text(text, encoding="utf-8")
                    (folder / f"{name}.new").rename(folder / name)
                continue
            deadline_s = asyncio.get_running_loop().time() + patience_s
            while wrong := await step_differs(step, ports):
                if asyncio.get_running_loop().time() >= deadline_s:
                    return f"{step.get('query', {}).get('name')}: {wrong}"
                await asyncio.sleep(POLL_S)
    return ""


def reason_to_skip(case: Case) -> str:
    """Why a case is not run, "" for no reason."""
    if any("additional" in step.get("query", {}) for step in case["steps"]):
        return SIGNED
    corefiles = [case["servers"][number]["corefile"] for number in asked_servers(case)]
    words = {line.split()[0] for corefile in corefiles for line in corefile.splitlines() if line.split()}
    missing = sorted(words & COREDNS_ONLY)
    return f"kdns does not have {', '.join(missing)}" if missing else ""


@each_case(RECORDED["cases"], itemgetter("id"), DEVIATIONS)
async def test_recorded_case(name: str, case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if reason := reason_to_skip(case):
        pytest.skip(f"{name}: {reason}")
    monkeypatch.chdir(tmp_path)
    assert not await case_differs(case, files_of(case, RECORDED), tmp_path)
