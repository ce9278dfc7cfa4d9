"""One file per Corefile directive: its grammar, its frozen configuration and what it does to a query."""
