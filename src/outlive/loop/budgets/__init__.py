"""Budgets: what a turn and a conversation may use, what they have used, and what is left for the next step.

What there may be is in the agent's definition (`amounts.py`), what was used and what was added is in the log
(`ledger.py`), what is left decides about a step before it is begun (`room.py`). All of that is pure. When too little is
left a person is asked (`activities/budget.py`); `raising.py` is how people look, and give more.
"""

from outlive.loop.budgets.amounts import Amounts, Budget, budget_of
from outlive.loop.budgets.ledger import BudgetFold, Ledger, Used
from outlive.loop.budgets.room import Asked, Short, room_for_answer, room_for_tool

__all__ = [
    "Amounts",
    "Asked",
    "Budget",
    "BudgetFold",
    "Ledger",
    "Short",
    "Used",
    "budget_of",
    "room_for_answer",
    "room_for_tool",
]
