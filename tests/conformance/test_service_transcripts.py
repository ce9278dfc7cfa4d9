"""Recorded transcripts of the Service registry through the real REST server: allocation, families, type transitions.

A transcript is one fresh server and its requests in order. Dynamic values are bound where they first appear.
The recorder called the registry without defaults; where a request meets them, `DEFAULTED` says with which result.
"""

import json
import re
from operator import itemgetter
from typing import Any

from recorded_cases import each_case, recorded
from rest_harness import Server, path_of, server

from kdns.controlplane.apimachinery.kinds import SERVICE, Json

RANGES = {"IPv4": "10.0.0.0/16", "IPv6": "2000::/108"}
MARK = re.compile(r"\$\{[a-z0-9]+:\d+\}")
KNOWN = {
    "TestUpdateIPsFromSingleStack/dualstack:v4v6#84": (
        "from operation 141 on the recorded registry has lost 2000::1, once a deleted Service's; here it is free again"
    )
}
NEEDLESS = (
    'Service "foo" is invalid: spec.healthCheckNodePort: Invalid value: 30000: '
    "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'"
)
DEFAULTED: dict[tuple[str, int], Json | str] = {
    ("TestFeatureSessionAffinity#94", 1): {"sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 10800}}},
    ("TestFeatureSessionAffinity#94", 8): {"sessionAffinity": "None", "sessionAffinityConfig": None},
    ("TestFeatureExternalTrafficPolicy#96", 13): {"externalTrafficPolicy": "Cluster"},
    ("TestFeatureExternalTrafficPolicy#96", 14): NEEDLESS,
    ("TestFeatureExternalTrafficPolicy#96", 25): {"externalTrafficPolicy": "Cluster"},
    ("TestFeatureExternalTrafficPolicy#96", 26): NEEDLESS,
}
"""(transcript, operation) → fields of the spec (None: none) or the message; asked as dry runs, which change nothing."""


class Registry:
    """One server, and what the marks of the transcript stand for."""

    def __init__(self, client: Server) -> None:
        self.client = client
        self.bound: dict[str, Any] = {}

    async def answer(self, op: Json) -> tuple[int, Json]:
        """Make the request of one operation."""
        if op["op"] == "create":
            self.bound = {mark: real for mark, real in self.bound.items() if mark in json.dumps(op["in"])}
        obj, query = self.filled(op["in"]), "?dryRun=All" if op.get("dryRun") else ""
        name = obj.get("name") or obj["metadata"]["name"]
        method = {"create": "POST", "update": "PUT", "delete": "DELETE"}[op["op"]]
        path = path_of(SERVICE, op["namespace"], "" if op["op"] == "create" else name)
        return await self.client(method, path + query, None if op["op"] == "delete" else obj)

    def good(self, op: Json, code: int, body: Json) -> bool:
        """Whether code and body are as recorded: the spec of an object, or all that an error tells."""
        if "expectError" in op:
            wanted = self.filled(op["expectError"])
            told = {"code": body.get("code"), "reason": body.get("reason"), "message": body.get("message")}
            causes = body.get("details", {}).get("causes")
            return bool(code == wanted["code"] and {**told, "causes": causes} == wanted)
        wanted_code = 201 if op["op"] == "create" else 200
        return code == wanted_code and ("expect" not in op or self.same(op["expect"]["spec"], body["spec"]))

    def filled(self, value: Any) -> Any:
        text = json.dumps(value)
        for mark, real in self.bound.items():
            text = text.replace(f'"{mark}"', json.dumps(real)).replace(mark, str(real))
        return json.loads(text)

    def same(self, wanted: Any, got: Any) -> bool:
        """Whether the object is as recorded; `answer` forgot the marks that this operation may bind anew."""
        if isinstance(wanted, str) and MARK.fullmatch(wanted):
            return bool(self.bound.setdefault(wanted, got) == got)
        if isinstance(wanted, dict) and isinstance(got, dict):
            return wanted.keys() == got.keys() and all(self.same(wanted[key], got[key]) for key in wanted)
        if isinstance(wanted, list) and isinstance(got, list):
            return len(wanted) == len(got) and all(self.same(*pair) for pair in zip(wanted, got, strict=True))
        return bool(wanted == got)


def defaulted(wanted: Json | str, code: int, body: Json) -> bool:
    """Whether the answer is what follows from the defaults."""
    if isinstance(wanted, str):
        return (code, body["message"]) == (422, wanted)
    return code in {200, 201} and all(body["spec"].get(field) == value for field, value in wanted.items())


def report(transcript: str, index: int, op: Json, code: int, body: Json) -> str:
    wanted = op.get("expectError") or op.get("expect", {}).get("spec")
    got = body.get("spec") or {key: body.get(key) for key in ("reason", "message", "details")}
    rows = (
        f"{transcript}[{index}] {op['op']}",
        f"in     {op['in'].get('spec')}",
        f"wanted {wanted}",
        f"got    {code} {got}",
    )
    return "\n  ".join(rows)


@each_case(recorded("service-registry-transcripts.json")["transcripts"], itemgetter("id"), KNOWN)
async def test_recorded_transcript(name: str, case: Json) -> None:
    async with server(*(RANGES[family] for family in case["families"])) as client:
        registry = Registry(client)
        for index, op in enumerate(case["ops"]):
            instead = DEFAULTED.get((name, index))
            code, body = await registry.answer({**op, "dryRun": True} if instead else op)
            is_good = defaulted(instead, code, body) if instead else registry.good(op, code, body)
            assert is_good, report(name, index, op, code, body)
