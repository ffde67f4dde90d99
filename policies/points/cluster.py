"""The decision points of the cluster engine."""

from wattkeeper.policies.points.configure import Configure
from wattkeeper.policies.points.place import Place
from wattkeeper.policies.points.point import DecisionPoint, register_points
from wattkeeper.policies.points.replan import Replan
from wattkeeper.policies.points.retain import Retain
from wattkeeper.policies.points.select import Select
from wattkeeper.policies.points.tune import Tune

register_points(
    DecisionPoint("configure", Configure, "Configuration"),
    DecisionPoint("select", Select, "Selection"),
    DecisionPoint("place", Place, "Placement"),
    DecisionPoint("tune", Tune, "Knobs"),
    DecisionPoint("replan", Replan, "Reshape"),
    DecisionPoint("retain", Retain, "Retention"),
)
