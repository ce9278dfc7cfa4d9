"""The recorded labels of metadata."""

from harness import Report, recorded

from kdns.plugins.observers.metadata import is_label


def test_metadata_cases() -> None:
    report = Report("misc-cases.json, metadata")
    for case in recorded("misc")["cases"]:
        if case.get("func") == "is_metadata_label":
            found = is_label(case["in"])
            report.add(case["id"], "" if found == case["expect"]["out"] else f"{case['in']}: {found}")
    assert report.counts.total() == 10
    report.check()
