"""The programs of iptables, and the clean-up of chains of all modes."""
