"""What pages show, made of what is known; without I/O."""
