"""The image: kdns imports nothing that it loses, and for releases it is built and serves port 53 as deploy/ runs it."""

import json
import os
import re
import shutil
import subprocess
import sys
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import pytest
import yaml

PROJECT = Path(__file__).parents[2]
DEPLOY = PROJECT / "deploy"
IMAGE = Path(__file__).parent / "image"
PROGRAMS = ("unshare", "ip", "dig", "nft", "setcap")
MAX_MIB = 70

IMPORTS = """
import importlib, pkgutil, kdns
names = {each.name for each in pkgutil.walk_packages(kdns.__path__, "kdns.") if not each.name.endswith("__main__")}
names.remove("kdns.pytest_plugin")  # pytest imports it, which an image has not
for name in names:
    importlib.import_module(name)
print("modules", len(names))
"""
LISTED = """
import json
from importlib.metadata import distributions
with open("/opt/kdns/share/sbom/kdns.cdx.json") as file:
    listed = {(each["name"], each["version"]) for each in json.load(file)["components"]}
installed = {(each.name, each.version) for each in distributions()}
assert listed == installed, listed ^ installed
print("listed", *sorted(name for name, _ in listed))
"""
WITHOUT = """
import sys

class Removed:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if any(name == each or name.startswith(f"{each}.") for each in REMOVED):
            raise ModuleNotFoundError(f"the image has no {name}", name=name)

sys.meta_path.insert(0, Removed)
"""


def instructions(stage: int) -> list[tuple[str, str]]:
    """The instructions of a stage of the Containerfile: name and rest, with lines that go on joined."""
    text = re.sub(r"^#.*\n", "", (DEPLOY / "Containerfile").read_text(), flags=re.MULTILINE).replace("\\\n", "")
    parts = [line.split(maxsplit=1) for line in text.splitlines() if line]
    stages = re.split(r"(?:^|(?<=\n))FROM ", "\n".join(" ".join(part) for part in parts))[1:]
    return [(line.split(maxsplit=1)[0], line.split(maxsplit=1)[1]) for line in stages[stage].splitlines()[1:]]


def container(path: Path, kind: str) -> tuple[dict[str, Any], str]:
    """The container of a manifest, and its arguments for container.py."""
    (found,) = (each for each in yaml.safe_load_all(path.read_text()) if each["kind"] == kind)
    pod = found["spec"]["template"]["spec"]
    (one,) = pod["containers"]
    context = pod["securityContext"] | one["securityContext"]
    assert context["readOnlyRootFilesystem"]
    assert context["capabilities"]["drop"] == ["ALL"]
    no_new_privs = "no" if context["allowPrivilegeEscalation"] else "yes"
    added = ",".join(context["capabilities"]["add"])
    return one, f"{context['runAsUser']} {context['runAsGroup']} {no_new_privs} {added}"


def removed() -> set[str]:
    """The modules that the image loses: of packages that are uninstalled, and folders of the package kubernetes."""
    (steps,) = (rest for name, rest in instructions(0) if name == "RUN" and "pip uninstall" in rest)
    (packages,) = re.findall(r"pip uninstall -y ([^&]+)", steps)
    (folders,) = re.findall(r"cd \S+/kubernetes\s+&& rm -r ([^&]+)", steps)
    modules = {name for name, owners in packages_distributions().items() if {*owners} <= {*packages.split()}}
    return modules | {f"kubernetes.{folder.replace('/', '.')}" for folder in folders.split()}


def test_kdns_imports_nothing_that_the_image_loses() -> None:
    assert {"requests", "pydantic", "kubernetes.client", "kubernetes.aio.client.api"} <= removed()
    program = f"REMOVED = {removed()}\n{WITHOUT}{IMPORTS}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=PROJECT, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.release
def test_the_image_serves_port_53_as_the_deployment_runs_it(tmp_path: Path) -> None:
    missing = [program for program in PROGRAMS if not shutil.which(program)]
    if os.geteuid() != 0 or missing:
        pytest.skip(f"needs root and {', '.join(PROGRAMS)}: it makes a root file system; missing: {missing or 'root'}")
    steps = instructions(0)
    (tmp_path / "src").mkdir()
    for name, rest in steps:
        if name == "COPY":
            *sources, target = rest.split()
            for source in sources:
                made = tmp_path / "src" / target
                made.parent.mkdir(exist_ok=True)
                copy = shutil.copytree if (PROJECT / source).is_dir() else shutil.copy
                copy(PROJECT / source, made)
    runs = [rest for name, rest in steps if name == "RUN" and "apt-get" not in rest]
    assert runs
    (tmp_path / "steps").write_text("\n".join(runs))
    (tmp_path / "Corefile").write_text(".:53 {\n errors\n health\n ready\n whoami\n loadbalance\n}\n")
    (tmp_path / "imports.py").write_text(IMPORTS + LISTED)
    shutil.copy(IMAGE / "container.py", tmp_path)
    (entrypoint,) = (json.loads(rest) for name, rest in instructions(1) if name == "ENTRYPOINT")
    (path,) = (
        value for name, rest in instructions(1) if name == "ENV" for value in re.findall(r"PATH=(\S+):\$PATH", rest)
    )
    _, context = container(DEPLOY / "deployment.yaml", "Deployment")
    proxy, proxy_context = container(DEPLOY / "proxy" / "daemonset.yaml", "DaemonSet")
    assert proxy["command"] == ["/usr/local/bin/python3", "-m", "kdns", "proxy"]
    base = Path(sys.base_prefix)
    environment = {
        "PATH": f"{path}:{base}/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "BASE_PREFIX": str(base),
        "PYTHON": f"{base}/bin/python3",
        "PYTHONDONTWRITEBYTECODE": "1",
        "SITE_PACKAGES": f"/opt/kdns/lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages",
        "INTERPRETER": f"{path}/python3",
        "ENTRYPOINT": " ".join(entrypoint),
        "CONTEXT": context,
        "PROXY_CONTEXT": proxy_context,
    }
    done = subprocess.run(
        ["unshare", "--mount", str(IMAGE / "build-and-ask"), str(tmp_path)],
        env={name: value for name, value in os.environ.items() if not name.startswith("PYTHON")} | environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    said = done.stdout + done.stderr
    if done.returncode == 3 and "No matching distribution found" in said:
        pytest.skip(f"pip has no package index here: {said.splitlines()[-1]}")
    assert done.returncode == 0, said
    assert int(said.split()[0]) < MAX_MIB, said
    status = dict(re.findall(r"^(\w+):\s+(\S+)", said, re.MULTILINE))
    assert status["Uid"] == context.split()[0], said
    assert status["NoNewPrivs"] == "1", said
    assert int(status["CapEff"], 16) == 1 << 10, said  # NET_BIND_SERVICE and no other
    assert "status: NOERROR" in said
    listed = re.findall(r"^listed (.+)$", said, re.MULTILINE)[0].split()
    assert {"kdns", "kubernetes", "aiohttp"} < set(listed)
    assert not {"pip", "setuptools", "cyclonedx-bom"} & set(listed)
