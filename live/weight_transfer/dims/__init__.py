"""Analysis of which dimensions of a program's tensors hold the same units."""
