"""The status page of a node's dataplane: its rules, what was refused, and what happens to a packet."""
