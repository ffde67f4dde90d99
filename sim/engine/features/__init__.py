"""Features of a world that subscribe: losses, stragglers, power caps, and knobs that change."""
