"""Makes the reference of docs/ from the code: `python -m tools.reference` writes every file that `files` returns."""
