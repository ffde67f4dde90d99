"""What a torch module computes, as a list of operators."""
