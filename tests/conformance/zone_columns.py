"""What recorded stanzas of directives about zones are understood as, column by column."""

import re
from typing import Any

from dns_chain import only

from kdns.dns.types import type_name
from kdns.plugins.guards.tsig import plugin as tsig
from kdns.plugins.sources import auto, file, transfer
from kdns.plugins.sources.secondary import plugin as secondary
from kdns.serverblocks.config import ServerConfig

DIRECTIVES = ("auto", "file", "secondary", "transfer", "tsig")
GO_NAMES = {
    "zoneFileName1": "db.miek.nl",
    "zoneFileName2": "db.dnssex.nl",
    "secretsFile": "secrets",
    "secretConfig.String()": "secret name.key. dGVzdC1rZXk=\n",
}
"""What Go expressions in recorded stanzas stand for."""


def go_text(expression: str) -> str:
    """The text of a Go expression of strings and names."""
    parts = re.findall(r"`([^`]*)`|\"((?:[^\"\\]|\\.)*)\"|([A-Za-z0-9.()]+)", expression)
    return "".join(raw or quoted.replace("\\n", "\n") or GO_NAMES.get(name, "") for raw, quoted, name in parts)


def strings(text: str) -> list[str]:
    """The strings of a Go literal."""
    return re.findall(r'"([^"]*)"', text)


def fallthrough_zones(text: str) -> tuple[str, ...]:
    """What `fall.F` of the recorded columns means."""
    return {"fall.Zero": (), "fall.F{}": (), "fall.Root": (".",)}.get(text, tuple(strings(text)))


def understood(case: dict[str, Any], server: ServerConfig) -> bool:
    """Whether what kdns read is what is recorded."""
    expected: dict[str, str] = case["expect"]
    match case["plugin"]:
        case "file":
            of_file = only(server, file.DIRECTIVE)
            zones = tuple(strings(expected["expectedZones"]))
            return (of_file.zones, of_file.fallthrough) == (zones, fallthrough_zones(expected["expectedFallthrough"]))
        case "auto":
            of_auto = only(server, auto.DIRECTIVE)
            if "expectedDirectory" not in expected:
                return bool(of_auto.directory)
            reload_s = int(expected["expectedReloadInterval"].split()[0])
            template = of_auto.template.replace("{", "${")
            got = (of_auto.directory, of_auto.pattern.replace("\\", ""), template, of_auto.reload_s)
            pattern = expected["expectedRe"].replace("\\", "")
            return got == (expected["expectedDirectory"], pattern, expected["expectedTempl"], reload_s)
        case "secondary":
            of_secondary = only(server, secondary.DIRECTIVE)
            zones = tuple(strings(expected["zones"])) or (".",)
            catalogs = expected["catalogZones"].partition(": ")[2]
            restricted = None if expected["catalogZones"] == "nil" else tuple(strings(catalogs))
            primaries = [str(primary) for primary in of_secondary.primaries]
            found = (of_secondary.zones, of_secondary.catalog, of_secondary.fallthrough)
            wanted = (zones, restricted, fallthrough_zones(expected["fall"]))
            return found == wanted and primaries == [expected["transferFrom"]]
        case "tsig":
            of_tsig = only(server, tsig.DIRECTIVE)
            qtypes, opcodes = expected["expectedQTypes"], expected["expectedOpCodes"]
            return (
                of_tsig.zones == tuple(strings(expected["expectedZones"]))
                and (of_tsig.qtypes is None) == ("expectedAllTypes" in expected)
                and (of_tsig.opcodes is None) == ("expectedAllOpcodes" in expected)
                and {type_name(number) for number in of_tsig.qtypes or ()} == set(re.findall(r"dns\.Type(\w+)", qtypes))
                and len(of_tsig.opcodes or ()) == opcodes.count("dns.Opcode")
            )
        case "transfer":
            configs = server.configs(transfer.DIRECTIVE)
            words: list[str] = []
            for config in configs:
                words += [*config.zones, *["*"] * config.is_open, *map(str, config.to), *filter(None, [config.source])]
            return words == strings(expected["exp"])
    raise AssertionError(case["plugin"])
