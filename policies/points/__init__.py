"""The decision points: one file a point, with its views, its answer and its base class."""
