"""`python -m kdns` is the `kdns` command."""

from kdns.cli import main

main()
