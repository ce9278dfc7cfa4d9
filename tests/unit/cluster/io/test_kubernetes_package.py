"""Of the kubernetes package, kdns imports a few modules and leaves the rest as it is for others."""

import subprocess
import sys

PROGRAM = """
import sys
if {before}:
    import kubernetes.aio
import kdns.cluster.io.credentials as door
loaded = {{name.partition(".")[0] for name in sys.modules}}
if not {before}:
    print(sorted(loaded & {{"kubernetes", "pydantic", "requests", "oauthlib", "urllib3", "websocket", "dateutil"}}))
import kubernetes.aio
print(kubernetes.aio.client.CoreV1Api.__name__, kubernetes.aio.client.Configuration.__name__)
print(door.Configuration().verify_ssl, door.KubeConfigLoader.__module__)
"""


def output(*, before: bool) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(before=before)], capture_output=True, text=True, check=True
    )
    return done.stdout.splitlines()


def test_only_what_is_used_is_imported_and_the_package_stays_whole() -> None:
    whole = ["CoreV1Api Configuration", "True kubernetes.aio.config.kube_config"]
    assert output(before=False) == ["[]", *whole]
    assert output(before=True) == whole
