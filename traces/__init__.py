"""Data in: canonical tables, one reader a file format, a generator, the trace library.

A trace is a folder with Parquet tables and what is known of their origin. There are two kinds:
``jobs`` (what was submitted when) and ``profiles`` (how fast, at what power and in how many epochs
a workload trains).

=============  ===================================================================
module         what it does
=============  ===================================================================
`schema`       the canonical tables, their units, their validation
`trace`        a trace in memory
`folder`       a trace on disk
`names`        what a trace may be called
`library`      traces by name
`formats`      import formats, one module each
`csvfile`      the CSV reader that they share
`profiles`     from tables to the profiles that policies and the simulator read
`potential`    what a choice of batch size and power limit could save
`describe`     what a trace holds and where it is odd
`streaming`    from a log of jobs to a trace on disk, batch by batch
`textfile`     batches of lines, with their numbers
`columns`      from text to values, with what is wrong by row
`mapping`      workloads for the jobs of a plain trace
`fetch`        well-known traces from their origin
`fit`          the distributions of a trace of jobs
`fits`         fits that are shipped
`sample`       jobs from a fit
`synthetic`    profiles of GPUs and workloads that nobody recorded
=============  ===================================================================

Importing this package loads none of them, nor pyarrow.
"""
