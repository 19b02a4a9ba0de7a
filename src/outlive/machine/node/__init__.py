"""A node: owns the sandboxes of one host. It may be killed and started again at any time; the sandboxes go on."""
