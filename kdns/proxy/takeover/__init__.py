"""From one proxy or mode of a node to the next."""
