"""The journal of `--data DIR`, an SQLite file."""
