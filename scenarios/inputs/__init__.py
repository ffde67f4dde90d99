"""What runs read: jobs, profiles, clusters, models."""
