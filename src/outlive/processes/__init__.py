"""The processes of a stack: what each does from its first line to its last, signals and shutdown order included."""
