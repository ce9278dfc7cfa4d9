"""With several addresses, in a network namespace of its own: the answer comes from the address that was asked."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ADDRESSES = ("10.9.9.1", "10.9.9.2", "169.254.20.10")
SET_UP = "ip link set lo up" + "".join(f" && ip address add {address}/24 dev lo" for address in ADDRESSES)
ASK = """
import asyncio, socket
from kdns.dnsserver.io.server import DnsServer
from kdns.corefile.parse import parse
from kdns.plugins.directives import configure
from kdns.errors import ListenError
from kdns.dns.message import query
from kdns.dns.types import rcode_name

def ask(port, source, target):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.settimeout(30)
        client.bind((source, 0))
        client.connect((target, port))  # takes no answer from another address
        client.send(query("anything.example.", 1))
        return rcode_name(client.recv(512)[3] & 15)

async def main():
    server = DnsServer(configure(parse("shop.test:5353 {\\n errors\\n}\\n")))
    await server.start()
    port = server.addresses[0][1]
    for target in ADDRESSES:
        for source in ADDRESSES:
            print(source, target, await asyncio.to_thread(ask, port, source, target))
    second = DnsServer(configure(parse("shop.test:5353 {\\n bind 10.9.9.2\\n}\\n")))
    try:
        await second.start()
    except ListenError as error:
        print(error)
    await server.stop()
    on_interface = DnsServer(configure(parse("shop.test:5353 {\\n bind lo\\n}\\n")))
    await on_interface.start()
    print(*(address for address, _ in on_interface.addresses if ":" not in address))
    await on_interface.stop()

asyncio.run(main())
"""


def test_answers_come_from_the_address_that_was_asked(tmp_path: Path) -> None:
    if os.geteuid() != 0 or not shutil.which("unshare") or not shutil.which("ip"):
        pytest.skip("needs root, unshare and ip: it makes a network namespace of its own")
    script = tmp_path / "ask.py"
    script.write_text(ASK.replace("ADDRESSES", repr(ADDRESSES)))
    command = f"{SET_UP} && exec {sys.executable} {script}"
    done = subprocess.run(
        ["unshare", "--net", "sh", "-c", command],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    if "unshare" in done.stderr:
        pytest.skip(f"no network namespace can be made here: {done.stderr.strip()}")
    said = done.stdout.splitlines()
    assert len(said) == 11, done.stdout + done.stderr
    assert all(line.endswith(" REFUSED") for line in said[:9]), done.stdout
    name = Path(sys.executable).name
    assert said[9].startswith(f"cannot listen on 10.9.9.2:5353: Address already in use by {name} (process ")
    assert {*said[10].split()} == {"127.0.0.1", *ADDRESSES}
