"""Batches: thousands of prompts from a file, each a conversation with one turn, done exactly once whatever dies.

    with open_record(folder) as record:
        await BatchRun(client, record, items, watch=..., options=...).run()

`items` reads the file, `record` is what is on the disk, `plan` decides what is left to do, `running` does it. The
server is the durable part: what is here may be killed at any line and is run again.
"""

from outlive.client.batches.items import Item, read_items
from outlive.client.batches.plan import Counts, Line, count, plan
from outlive.client.batches.record import FAILURES, RESULTS, WAITING, Header, Record, glance, open_record, read_header
from outlive.client.batches.running import BatchRun, Options, Standing, Watch

__all__ = [
    "FAILURES",
    "RESULTS",
    "WAITING",
    "BatchRun",
    "Counts",
    "Header",
    "Item",
    "Line",
    "Options",
    "Record",
    "Standing",
    "Watch",
    "count",
    "glance",
    "open_record",
    "plan",
    "read_header",
    "read_items",
]
