"""The machine layer: computers with a life of their own. Never imports `conversation` or the loop."""
