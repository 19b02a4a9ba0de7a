"""A pretend provider of models that speaks the wire protocols of the real ones, and can be told what to do.

`script` says how to tell it; `server` runs it in this process, `process` in one of its own.
"""

from outlive.testing.pretend_provider.ledger import Call, Ledger
from outlive.testing.pretend_provider.process import ProviderProcess, provider_process
from outlive.testing.pretend_provider.script import Trouble
from outlive.testing.pretend_provider.server import PretendProvider, environment_of, pretend_provider

__all__ = [
    "Call",
    "Ledger",
    "PretendProvider",
    "ProviderProcess",
    "Trouble",
    "environment_of",
    "pretend_provider",
    "provider_process",
]
