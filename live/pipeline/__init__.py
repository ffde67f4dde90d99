"""Live pipeline-parallel training: clocks by instruction, profiles, stragglers."""
