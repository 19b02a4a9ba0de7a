"""The SDK: speaks to Outlive over its API, and knows nothing of the server's folders.

from outlive import Client
conversation = Client().conversations.create(agent="coder")
for event in conversation.run("Make the failing test pass"):
    print(event)
"""

from outlive.client.agents import AgentFacts, Agents, AsyncAgents
from outlive.client.approvals import ApprovalFacts, Approvals, AsyncApprovals
from outlive.client.attaching import Attachment
from outlive.client.blobs import AsyncBlobs, Blobs
from outlive.client.client import AsyncClient
from outlive.client.conversations import AsyncConversation, AsyncConversations
from outlive.client.endpoint import Endpoint, find_endpoint
from outlive.client.environments import AsyncEnvironments, EnvironmentFacts, Environments
from outlive.client.following import Following
from outlive.client.machine_wire import EgressFacts, ExecResult, FileFacts, MachineFacts, Piece
from outlive.client.machines import AsyncMachine, AsyncMachines
from outlive.client.principals import AsyncPrincipals, PrincipalFacts, Principals
from outlive.client.races import AsyncRace, AsyncRaces, ContestantFacts, Race, RaceFacts, Races
from outlive.client.running import Run
from outlive.client.sync import Client, Conversation, Conversations
from outlive.client.sync_machines import Machine, Machines
from outlive.client.sync_terminals import SyncAttachment, Terminals
from outlive.client.terminal_wire import TerminalExit, TerminalFacts, TerminalFrame, TerminalOutput, TerminalStatus
from outlive.client.terminals import AsyncTerminals
from outlive.client.view import View
from outlive.client.wire import ConversationFacts, Event, FollowUp, Sent, Transcript

__all__ = [
    "AgentFacts",
    "Agents",
    "ApprovalFacts",
    "Approvals",
    "AsyncAgents",
    "AsyncApprovals",
    "AsyncBlobs",
    "AsyncClient",
    "AsyncConversation",
    "AsyncConversations",
    "AsyncEnvironments",
    "AsyncMachine",
    "AsyncMachines",
    "AsyncPrincipals",
    "AsyncRace",
    "AsyncRaces",
    "AsyncTerminals",
    "Attachment",
    "Blobs",
    "Client",
    "ContestantFacts",
    "Conversation",
    "ConversationFacts",
    "Conversations",
    "EgressFacts",
    "Endpoint",
    "EnvironmentFacts",
    "Environments",
    "Event",
    "ExecResult",
    "FileFacts",
    "FollowUp",
    "Following",
    "Machine",
    "MachineFacts",
    "Machines",
    "Piece",
    "PrincipalFacts",
    "Principals",
    "Race",
    "RaceFacts",
    "Races",
    "Run",
    "Sent",
    "SyncAttachment",
    "TerminalExit",
    "TerminalFacts",
    "TerminalFrame",
    "TerminalOutput",
    "TerminalStatus",
    "Terminals",
    "Transcript",
    "View",
    "find_endpoint",
]
