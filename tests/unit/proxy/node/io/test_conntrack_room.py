"""A table of connections that is nearly full is logged once, until it has had room again."""

from pathlib import Path

from structlog.testing import capture_logs

from kdns.proxy.node.io.conntrack_room import ConntrackRoom

FULL, CALM = "connection tracking nearly full: a full table loses new connections", "connection tracking has room again"
STEPS: tuple[tuple[str, str, list[str]], ...] = (
    ("949", "1000", []),
    ("950", "1000", [FULL]),
    ("1000", "1000", []),
    ("800", "1000", []),
    ("990", "1000", []),
    ("990", "2000", [CALM]),
    ("2000", "2000", [FULL]),
    ("0", "0", []),
    ("?", "1000", []),
    ("0", "1000", [CALM]),
)
"""The kernel's count and limit, one after the other, and what is logged then."""


def test_a_table_that_fills_is_logged_once(tmp_path: Path) -> None:
    room = ConntrackRoom(tmp_path)
    with capture_logs() as logs:
        room.look()
    assert logs == []  # a kernel without connection tracking
    for count, limit, events in STEPS:
        (tmp_path / "nf_conntrack_count").write_text(f"{count}\n", encoding="ascii")
        (tmp_path / "nf_conntrack_max").write_text(f"{limit}\n", encoding="ascii")
        with capture_logs() as logs:
            room.look()
        assert [entry["event"] for entry in logs] == events, (count, limit)
