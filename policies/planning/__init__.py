"""Plans of one job: when it runs how fast, for the least energy, cost or carbon."""
