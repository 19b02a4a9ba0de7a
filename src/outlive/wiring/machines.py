"""From settings to the parts of the machine layer that an API or a worker has."""

from temporalio.client import Client

from outlive.machine.backends.temporal_builder import TemporalBuilder
from outlive.machine.backends.temporal_settler import TemporalSettler
from outlive.machine.environments import Builder
from outlive.machine.keeper import Settler


def make_builder(client: Client) -> Builder:
    return TemporalBuilder(client)


def make_settler(client: Client) -> Settler:
    return TemporalSettler(client)
