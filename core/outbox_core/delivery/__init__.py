"""What a lane does and in which order, without I/O: the state machines of both delivery modes."""
