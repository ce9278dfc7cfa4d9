"""What the mode does on a machine: nothing."""
