"""New versions of zone files: by the serial, or by the text."""

import pytest
from dns_chain import FakeWorld

from kdns.plugins.sources.file import newer_version
from kdns.plugins.sources.zones.authority import ServedZone


@pytest.mark.parametrize("ignores_serial", [False, True])
def test_a_changed_file_with_the_same_serial(ignores_serial: bool) -> None:
    """Also one that only includes a changed file; without a change there is no new version."""
    head = "@ 60 IN SOA ns.a. root.a. 1 60 60 60 60\n@ 60 IN NS ns.a.\n"
    files = FakeWorld(files={"/db": head + "x 60 IN A 192.0.2.1\n", "/more": "y 60 IN A 192.0.2.1\n"})
    served = ServedZone("a.")

    def has_new_version() -> bool:
        version = newer_version("/db", served, files, ignores_serial=ignores_serial)
        served.zone = version.zone if version else served.zone
        return version is not None

    found = [has_new_version(), has_new_version()]
    for path, text in (
        ("/db", head + "x 60 IN A 192.0.2.2\n"),
        ("/db", head + "$INCLUDE more\n"),
        ("/more", "y 60 IN A 192.0.2.2\n"),
    ):
        files.files[path] = text
        found += [has_new_version(), has_new_version()]
    assert found == [True, False, *[ignores_serial, False] * 3]
