"""The comparison's processes on Shunt: two sessions of one daemon, each with memory of its own."""

import world
from blocks import steady_state


def owner(pipe, job, socket):
    import shunt

    session = shunt.connect(socket)
    is_source = job.operation == "READ"
    memory = session.empty((job.pieces, job.piece_bytes), "uint8")
    job.fill(memory, is_source)
    session.agent("owner").publish("pieces", memory)
    pipe.tell(None)
    while True:
        if pipe.hear() == "refill":
            job.fill(memory, is_source)
            pipe.tell(None)
        else:
            pipe.tell(job.wrong(memory, is_source))


def mover(pipe, job, socket):
    import shunt

    session = shunt.connect(socket)
    is_source = job.operation == "WRITE"
    memory = session.empty((job.pieces, job.piece_bytes), "uint8")
    job.fill(memory, is_source)
    pipe.hear()  # it has been published
    theirs = world.fetched(session, "owner", "pieces", "write" if is_source else "read")
    # Prepared and selected once, as NIXL's lists and request are.
    local = session.prepare(memory).ids(job.order_of_mover.astype("uint32"))
    remote = theirs.ids(job.order_of_owner.astype("uint32"))
    post = session.push if is_source else session.pull

    def move():
        post(local, remote).wait()

    pipe.tell(steady_state(job, move))
    pipe.hear()
    job.fill(memory, is_source)
    move()
    pipe.tell(job.wrong(memory, is_source))
    pipe.hear()
