"""The contract of policies: what every policy keeps, whatever it decides, and how it is checked."""
