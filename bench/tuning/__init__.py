"""Which setting matters over which link: rates and latencies beside those of the defaults, in one run.

A link delays data by half a round trip in either direction, and does not limit how much there is of it.
What a harvester does over a slow link is waiting, so such cells can be measured beside others; those without
a delay need a quiet machine.
"""
