"""The node's own door, over HTTP: a thin adaptor over `MachineDoor`, for the API and for tool steps. Not public."""

from outlive.api.node.app import NodeApp
from outlive.api.node.serve import NodeListeners, listen_for_node, serve_node

__all__ = ["NodeApp", "NodeListeners", "listen_for_node", "serve_node"]
