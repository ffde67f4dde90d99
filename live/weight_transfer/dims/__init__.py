"""Which dimensions of the tensors of a program are the same units."""
