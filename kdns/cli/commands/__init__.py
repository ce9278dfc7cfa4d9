"""The commands: a file each, imported when it is called."""
