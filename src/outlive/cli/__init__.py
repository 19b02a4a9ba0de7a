"""The `outlive` command: thin, over `client/` and `processes/`. Each command imports what is heavy by itself."""
