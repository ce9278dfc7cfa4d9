"""`python -m kdns` is the `kdns` command."""

from kdns.cli.main import main

main()
