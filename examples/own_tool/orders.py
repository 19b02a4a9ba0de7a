"""Tools of a shop: what an order costs, and paying one back. `outlive worker --tools orders` runs them."""

from pydantic import BaseModel

from outlive import ToolContext, ToolError, tool

ORDERS = {"1042": 100.0, "1043": 25.5}
TAX = 0.19
PAID_BACK: dict[str, str] = {}  # stands for a payment provider, which keeps the key of every payment


class Price(BaseModel):
    order: str
    net: float
    gross: float


@tool(idempotent=True, parallel=True)
def price(order: str) -> Price:
    """What an order costs, without and with tax."""
    if order not in ORDERS:
        raise ToolError(f"There is no order {order}. There are: {', '.join(ORDERS)}.")
    return Price(order=order, net=ORDERS[order], gross=round(ORDERS[order] * (1 + TAX), 2))


@tool
async def pay_back(order: str, amount: float, context: ToolContext) -> str:
    """Pay an amount of an order back. Never done twice for one call."""
    context.say(f"paying back {amount:.2f} of order {order}\n")
    PAID_BACK[context.effect_id] = order  # the same key again would change nothing
    return f"Paid back {amount:.2f} of order {order}."
