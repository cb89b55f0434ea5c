"""What the end-to-end tests share: running the command, reading dumps, checking datasets."""
