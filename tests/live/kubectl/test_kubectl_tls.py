"""kubectl over TLS with a bearer token or a client certificate: the ways in from other machines."""

import asyncio
import json
import os
import shutil
from pathlib import Path

import pytest
from fake_api_certs import Authority, authority, issue
from object_api import Api

from kdns.controlplane.server.access import ADMIN
from kdns.controlplane.server.io import server as rest
from kdns.controlplane.server.io.authentication import RestConfig
from kdns.controlplane.server.io.secure_serving import tls_context

KUBECTL = shutil.which("kubectl") or ""
pytestmark = pytest.mark.skipif(not KUBECTL, reason="kubectl is not on PATH: install it to run these tests")


async def test_only_a_good_token_or_certificate_gets_in(tmp_path: Path) -> None:
    ca = authority("test")
    (tmp_path / "ca.crt").write_bytes(ca.pem)
    certificate, key = issue(ca, "localhost", tmp_path)
    context = tls_context(str(certificate), str(key), str(tmp_path / "ca.crt"))
    server = await rest.start(Api().registry, RestConfig("127.0.0.1", 0, tokens={"good": ADMIN}, ssl_context=context))

    async def kubectl(*arguments: str) -> tuple[int, str]:
        where = (
            "--server",
            f"https://127.0.0.1:{server.address[1]}",
            "--certificate-authority",
            str(tmp_path / "ca.crt"),
        )
        (tmp_path / "config").write_text(json.dumps({"apiVersion": "v1", "kind": "Config"}))
        env = {**os.environ, "HOME": str(tmp_path), "KUBECONFIG": str(tmp_path / "config")}
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(KUBECTL, *where, *arguments, env=env, stdout=pipe, stderr=pipe)
        async with asyncio.timeout(90):
            out, err = await process.communicate()
        return process.returncode or 0, (out + err).decode()

    assert await kubectl("--token", "good", "get", "ns", "-o", "name") == (0, "namespace/default\n")
    code, said = await kubectl("--token", "bad", "get", "ns", "-o", "name")
    assert (code, "Unauthorized" in said or "must be logged in" in said) == (1, True), said

    def logged_in(name: str, by: Authority = ca, end_h: float = 1) -> tuple[str, ...]:
        crt, key = issue(by, name, tmp_path, groups=("system:masters", "devs"), end_h=end_h)
        return "--client-certificate", str(crt), "--client-key", str(key)

    code, said = await kubectl(*logged_in("ann"), "--token", "bad", "auth", "whoami", "-o", "json")
    user = json.loads(said)["status"]["userInfo"]
    assert (code, user["username"], user["groups"]) == (0, "ann", ["system:masters", "devs", "system:authenticated"])
    assert user["extra"]["authentication.kubernetes.io/credential-id"][0].startswith("X509SHA256=")
    assert await kubectl(*logged_in("ann"), "auth", "can-i", "get", "pods") == (0, "yes\n")
    code, said = await kubectl(*logged_in("ann"), "auth", "can-i", "get", "pods", "--as", "bob")
    assert (code, "impersonation is not supported" in said) == (1, True), said
    code, said = await kubectl(*logged_in("late", end_h=-1), "get", "ns")
    assert (code, "expired certificate" in said) == (1, True), said
    code, said = await kubectl(*logged_in("other", authority("other")), "get", "ns")
    assert (code, "unknown certificate authority" in said) == (1, True), said
    await server.close()
