"""What results say, as blocks that a page, a terminal and a notebook render."""
