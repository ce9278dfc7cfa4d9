"""Files below folders, and below mounted ConfigMaps: one path for each file, which stays with a new version."""

import os
from collections.abc import Mapping
from pathlib import Path

import pytest
from configured import configured
from served_kinds import CATALOGUE

from kdns.cluster.io.clusters import Clusters
from kdns.controlplane.manifests.io.files import load
from kdns.dnsserver.io.world import BlockWorld, SharedResources
from kdns.plugins.sources.auto import AutoConfig, scan
from kdns.plugins.sources.zones.authority import ServedZone
from kdns.runtime.files.folders import VOLUME, files_below

ZONE = "@ 60 IN SOA ns.example. root.example. 1 60 60 60 60\n@ 60 IN NS ns.example.\n"


def publish(volume: Path, version: str, texts: Mapping[str, str]) -> None:
    """Writes a version of a volume as a kubelet does: the data first, then `..data`, then links that are new."""
    for name, text in texts.items():
        path = volume / version / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    before = volume / "..data"
    old = before.resolve() if before.is_symlink() else None
    (volume / "..data_tmp").symlink_to(version)
    (volume / "..data_tmp").rename(before)
    for name in {Path(name).parts[0] for name in texts}:
        if not (volume / name).is_symlink():
            (volume / name).symlink_to(f"..data/{name}")
    if old:
        for path in sorted(old.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        old.rmdir()


def refuse(error: OSError) -> None:
    raise error


def below(folder: Path, hidden: str = VOLUME) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in files_below(folder, refuse, hidden))


@pytest.mark.parametrize("hidden", [".", ".."])
def test_a_volume_has_each_file_once_in_every_version(tmp_path: Path, hidden: str) -> None:
    names = ["db.a.test", "more/db.b.test", "more/deep/db.c.test"]
    for version in ("..2026_01_31_12_00_00.1", "..2026_01_31_12_00_00.2"):
        publish(tmp_path, version, dict.fromkeys(names, version))
        assert below(tmp_path, hidden) == names
        assert {(tmp_path / name).read_text() for name in names} == {version}
    link = tmp_path.parent / f"{tmp_path.name}-link"
    link.symlink_to(tmp_path)
    assert below(link, hidden) == names


def test_links_in_circles_and_out_of_the_folder_are_not_followed(tmp_path: Path) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    (root / "folder").mkdir(parents=True)
    outside.mkdir()
    for path in (root / "a", root / "folder" / "b", outside / "c", root / ".hidden"):
        path.write_text("")
    for name, target in (
        ("self", "."), ("parent", ".."), ("again", "folder"), ("out", str(outside)), ("loop", "loop"),
        ("folder/back", ".."), ("file", "folder/b"),
    ):  # fmt: skip
        (root / name).symlink_to(target)
    assert below(root) == [".hidden", "a", "file", "folder/b", "loop"]
    publish(root, "..v1", {"data/d": "", "data/e": ""})
    (root / "..v1" / "data" / "circle").symlink_to("../../..data/data")
    assert below(root, ".") == ["a", "data/d", "data/e", "file", "folder/b", "loop"]


def test_an_unreadable_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        below(tmp_path / "absent")


def test_auto_reads_a_mounted_config_map_without_duplicates(tmp_path: Path) -> None:
    served: dict[str, ServedZone] = {}
    (config,) = configured(".\n")
    world = BlockWorld(config, SharedResources(Clusters()))
    for version, serial in (("..2026_01_31_12_00_00.1", 1), ("..2026_01_31_12_00_00.2", 2)):
        text = ZONE.replace(" 1 ", f" {serial} ", 1)
        publish(tmp_path, version, {"db.a.example": text, "more/db.b.example": text})
        scanned = scan(AutoConfig((".",), str(tmp_path)), served, world)
        assert scanned.chosen == {
            "a.example.": str(tmp_path / "db.a.example"),
            "b.example.": str(tmp_path / "more" / "db.b.example"),
        }
        assert (scanned.left_out, scanned.mistakes) == ({}, [])
        assert {name: version.zone.serial for name, version in scanned.versions.items()} == dict.fromkeys(
            scanned.chosen, serial
        )
        for name, version_found in scanned.versions.items():
            served[name].zone = version_found.zone


def test_manifests_of_a_mounted_config_map(tmp_path: Path) -> None:
    texts = {
        name: f"apiVersion: v1\nkind: Namespace\nmetadata: {{name: {name.split('/')[-1].split('.')[0]}}}\n"
        for name in ("one.yaml", "more/two.yaml")
    }
    publish(tmp_path, "..2026_01_31_12_00_00.1", texts)
    manifests, _ = load([tmp_path], CATALOGUE)
    assert sorted(os.path.relpath(manifest.path, tmp_path) for manifest in manifests) == sorted(texts)
