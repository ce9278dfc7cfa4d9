"""The `dnssec` directive: signs answers on the fly."""
