"""The YAML that is written reads as the same value, here and with YAML 1.1, and any text is a value or an error."""

from typing import Any

import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from kdns.errors import ManifestError
from kdns.runtime.files.yaml import documents, dumped

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
WORDS = st.text("0123456789_.:+-eExob~<=yn #&*!|>'\"{}[],\n\t ", max_size=8)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**64 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    TEXT,
    WORDS,
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(TEXT | WORDS, inner, max_size=4)),
    max_leaves=12,
)


@given(VALUES.filter(lambda value: value is not None))
@example({"1e3": ["1e3", "08", "0o7", "1:30", "yes", "<<", "=", "", "2001-01-01"]})
def test_what_is_written_reads_as_it_was(value: Any) -> None:
    text = dumped({"kind": "x", "value": value})
    (document,) = documents("a.yaml", text)
    assert document.value == {"kind": "x", "value": value}
    assert yaml.safe_load(text) == document.value


@given(WORDS | st.text("-?:{}[]&*a %\n", max_size=60))
def test_any_text_is_values_or_an_error(text: str) -> None:
    try:
        parsed = documents("a.yaml", text)
    except ManifestError:
        return
    for document in parsed:
        dumped(document.value)
