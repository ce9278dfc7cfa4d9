"""The `dnssec` directive: answers are signed while they are made."""
