"""What a node serves and says about its dataplane."""
