"""Results in notebooks: how they are displayed, and plots of them."""
