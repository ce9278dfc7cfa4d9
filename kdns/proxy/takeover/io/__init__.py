"""From one proxy of a node to the next, whatever its mode: who serves the node, and what others left in the kernel."""
