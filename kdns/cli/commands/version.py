"""The command `kdns version`."""

from __future__ import annotations

import json
import platform
from typing import Final

import kdns
from kdns.cli.command import command
from kdns.cli.console import say
from kdns.cli.flags import output_option
from kdns.controlplane.schema.schema import KUBERNETES_VERSION
from kdns.dnsserver.io.burst.event_loop import is_compiled
from kdns.runtime.files.yaml import dumped

NAMES: Final = {"kdns": "kdns", "python": "Python", "kubernetes": "Kubernetes", "udp": "UDP"}


@command("version", "kdns version", "kdns version -o json")
@output_option("Lines, or an object for programs.", ("text", "json", "yaml"))
def version(output: str) -> None:
    """Print the versions of kdns, of Python and of the Kubernetes API that kdns serves.

    "UDP compiled" says that compiled code sends the answers that are ready; without a C compiler, kdns installs itself
    without it, and Python does the same in more time.
    """
    versions = {
        "kdns": kdns.__version__,
        "python": platform.python_version(),
        "kubernetes": KUBERNETES_VERSION,
        "udp": "compiled" if is_compiled() else "interpreted",
    }
    match output:
        case "json":
            say(json.dumps(versions, indent=2))
        case "yaml":
            say(dumped(versions).removesuffix("\n"))
        case _:
            for name, text in versions.items():
                say(f"{NAMES[name]} {text}")
