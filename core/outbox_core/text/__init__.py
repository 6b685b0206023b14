"""What people read: durations, times and counts in words, log lines, and what is left out of them."""
