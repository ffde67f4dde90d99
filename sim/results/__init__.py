"""What any run leaves: folder, tables in Parquet, digests, statistics, summary."""
