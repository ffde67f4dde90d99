"""What a run of the cluster engine leaves: tables, metrics, accounting, laws."""
