"""`python -m tools.reference` writes the files of the reference."""

from tools.reference.files import ROOT, files

for name, text in files().items():
    (ROOT / name).write_text(text, encoding="utf-8")
