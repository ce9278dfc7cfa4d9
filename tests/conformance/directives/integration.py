"""Recorded cases of whole servers: every block of a Corefile, and questions to them in turn."""

from collections.abc import Collection

from configured import configured
from dns_chain import FakeWorld, response_to, server_of_blocks
from harness import Case, client_of, difference, files_of, packet_of, recorded, shown

from kdns.dnsserver.blocks import Server


def cases(names: Collection[str]) -> list[tuple[Case, dict[str, str]]]:
    """The recorded cases of these tests, each with its files."""
    content = recorded("integration")
    wanted = [case for case in content["cases"] if case["id"].split("/")[1] in names]
    return [(case, files_of(case, content)) for case in wanted]


def server_of_corefile(corefile: str, files: dict[str, str]) -> Server:
    """One server with all blocks of a Corefile, as a listener has them."""
    return server_of_blocks(configured(corefile), lambda: FakeWorld(files={"/etc/hosts": "", **files}))


async def steps_otherwise(case: Case, files: dict[str, str]) -> str:
    """The first step whose reply is not as recorded, "" for none; flags are not compared."""
    servers: dict[str, Server] = {}
    for step in case["steps"]:
        name = step["server"]
        if name not in servers:
            corefile = case["servers"][int(name.removeprefix("S"))]["corefile"]
            for index in range(len(case["servers"])):
                corefile = corefile.replace(f"PORT_S{index}", "53")
            servers[name] = server_of_corefile(corefile, files)
        server, query = servers[name], step["query"]
        outcome = server.respond(packet_of(query), server.table.partition(step["proto"], 4), client_of(query))
        wire = (await response_to(outcome)).wire
        if wrong := difference(step["reply"], shown(wire)):
            return f"{query['name']} {query['type']}: {wrong}"
    return ""
