"""gVisor sandboxes of one host. See `sandboxes`."""

from outlive.machine.backends.gvisor.sandboxes import GvisorSandboxes, open_gvisor_sandboxes

__all__ = ["GvisorSandboxes", "open_gvisor_sandboxes"]
