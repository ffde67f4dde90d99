"""Floor 2, data in: canonical tables, import formats, generators, and the trace library.

A trace is a folder with Parquet tables and their origin. There are two kinds: ``jobs`` (which jobs
were submitted when) and ``profiles`` (speed, power and epochs of workloads).

Importing this package loads none of its modules, nor pyarrow.
"""
