"""The steps of a turn as Temporal runs them: thin shells around the log, models and tools.

Each looks into the log first: what is sealed there is never done again. Each seals its step in the log and only then
returns the next plan, so whoever dies in between is followed by one that finds the seal.
"""

from outlive.loop.activities.announce import AnnounceActivities
from outlive.loop.activities.compaction import CompactionActivities
from outlive.loop.activities.model import ModelActivities, ModelBounds
from outlive.loop.activities.offers import OfferActivities
from outlive.loop.activities.plan import PlanActivities
from outlive.loop.activities.rest import RestActivities
from outlive.loop.activities.tool import ToolActivities

__all__ = [
    "AnnounceActivities",
    "CompactionActivities",
    "ModelActivities",
    "ModelBounds",
    "OfferActivities",
    "PlanActivities",
    "RestActivities",
    "ToolActivities",
]
