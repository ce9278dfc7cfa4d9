"""The answer table's hits over UDP in C, inside the selector of an event loop."""
