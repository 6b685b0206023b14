"""Cut-overs from goharvest and from Debezium's outbox event router, and back, under load.

Makes the steps of ``docs/leaving-debezium.md``, in its order, while an application writes; then compares all
that was committed with all that a consumer of committed records reads. Builds goharvest's reaper from the Go
module proxy, and fetches Debezium from Maven Central, into the cache folder.

    python -m bench.leaving goharvest --rounds 5 --no-pause --delivery exactly-once
    python -m bench.leaving debezium --rounds 2
"""
