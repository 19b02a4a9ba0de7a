"""Whether the memory of a checkpoint can be restored on this host. Pure.

Restored memory goes on reading the files that it had mapped, and the instructions that it had chosen: so the base, the
guest's runtime and the sandbox's version must be the very same, and the CPU must have all that the old one had. Nothing
of this is checked by the sandbox itself; a wrong answer here would be silent damage.
"""

from outlive.machine.base import Base
from outlive.machine.checkpoint import Manifest
from outlive.machine.node.parts import HostFacts


def why_not_restorable(manifest: Manifest, base: Base, runtime_key: str, host: HostFacts) -> str | None:
    """None if it can be; else the reason, to be said where the machine says that it was rebooted."""
    facts = manifest.facts
    if not manifest.has_memory:
        return "the checkpoint holds no memory"
    if facts.base_key != base.key:
        return f"its base is {facts.base_key}, not {base.key}"
    if facts.base_fingerprint != base.fingerprint:
        return "its base has changed since"
    if facts.runtime_key != runtime_key:
        return "the guest's runtime has changed since"
    if (facts.runsc_version, facts.platform) != (host.runsc_version, host.platform):
        return f"it was saved by runsc {facts.runsc_version} on {facts.platform}, here is {host.runsc_version}"
    if missing := sorted(set(facts.cpu_features) - set(host.cpu_features)):
        return f"this CPU lacks {', '.join(missing[:8])}"
    return None
