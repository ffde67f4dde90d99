"""Charts of the pages: one file a kind of chart."""
