"""From a command line to running processes, and back. Knows processes by their dotted names only."""
