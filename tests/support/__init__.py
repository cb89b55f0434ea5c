"""Support of the end-to-end tests: running the command, reading dumps, checking datasets."""
