"""The commands `wattkeeper elastic ...`."""
