"""The comparison's processes on NIXL: two agents with the UCX backend over host memory."""

import dataclasses
import os
import threading

import numpy as np

from blocks import steady_state


@dataclasses.dataclass(frozen=True)
class Settings:
    """How NIXL is set up; `name` is for people. `agents` of the mover, each with a thread of its own, share the
    blocks between them."""

    name: str
    backend: tuple = ()  # parameters of the UCX backend
    environment: tuple = ()
    agents: int = 1
    owner_polls: bool = False  # for notifications, all the time, beside the progress thread


THREADS = max(2, min(8, os.cpu_count()))
_SHARED_MEMORY = (("UCX_TLS", "posix,self"),)
_THREADS = ("num_threads", str(THREADS))
_NO_PEER_ERRORS = ("ucx_error_handling_mode", "none")  # shared memory is used only without

# Which of them is fastest depends on the size, the direction and the machine: each is tried, and the best one counts.
# What UCX chooses by itself between two processes is the kernel's copy from memory to memory (CMA).
SETTINGS = (
    Settings("as it comes"),
    Settings("threads", (_THREADS,)),
    Settings("threads, batches of 128", (_THREADS, ("split_batch_size", "128"))),
    Settings("no peer errors", (_NO_PEER_ERRORS,)),
    Settings("no peer errors, threads", (_NO_PEER_ERRORS, _THREADS)),
    Settings("an agent a thread", agents=THREADS),
    Settings("shared memory", (_NO_PEER_ERRORS,), _SHARED_MEMORY),
    Settings("shared memory, threads", (_NO_PEER_ERRORS, _THREADS), _SHARED_MEMORY),
    Settings("shared memory, owner polls", (_NO_PEER_ERRORS,), _SHARED_MEMORY, owner_polls=True),
)


def version():
    """None if NIXL is not there."""
    import importlib.metadata

    for name in ("nixl-cu13", "nixl-cu12"):
        try:
            return f"{name} {importlib.metadata.version(name)}"
        except importlib.metadata.PackageNotFoundError:
            pass
    return None


def _api(settings):
    os.environ.update(settings.environment)
    os.environ.setdefault("NIXL_LOG_LEVEL", "ERROR")
    os.environ.setdefault("UCX_WARN_UNUSED_ENV_VARS", "n")
    try:
        import nixl_cu13._api as api
    except ImportError:
        import nixl_cu12._api as api
    return api


def _agent(api, name, settings):
    agent = api.nixl_agent(name, api.nixl_agent_config(enable_prog_thread=True, backends=[]))
    agent.create_backend("UCX", dict(settings.backend))
    return agent


def _memory(job):
    """On a page's border, as Shunt's is."""
    raw = np.empty(job.bytes + 4096, np.uint8)
    begin = -raw.ctypes.data % 4096
    return raw[begin : begin + job.bytes].reshape(job.pieces, job.piece_bytes)


def _descriptors(address, job):
    rows = np.zeros((job.pieces, 3), np.uint64)
    rows[:, 0] = address + np.arange(job.pieces, dtype=np.uint64) * np.uint64(job.piece_bytes)
    rows[:, 1] = job.piece_bytes
    return rows


def owner(pipe, job, settings):
    agent = _agent(_api(settings), "owner", settings)
    is_source = job.operation == "READ"
    memory = _memory(job)
    job.fill(memory, is_source)
    registered = agent.register_memory([(memory.ctypes.data, memory.nbytes, 0, "")], "DRAM")
    pipe.tell((agent.get_agent_metadata(), memory.ctypes.data))
    try:
        while True:
            while settings.owner_polls and not pipe.waits():
                agent.get_new_notifs()
            if pipe.hear() == "refill":
                job.fill(memory, is_source)
                pipe.tell(None)
            else:
                pipe.tell(job.wrong(memory, is_source))
    finally:
        agent.deregister_memory(registered)


class _Mover:
    """One of the mover's agents, with a share of the blocks."""

    def __init__(self, api, name, job, settings, memory, metadata, address, share):
        self.agent = _agent(api, name, settings)
        self.registered = self.agent.register_memory([(memory.ctypes.data, memory.nbytes, 0, "")], "DRAM")
        peer = self.agent.add_remote_agent(metadata)
        self.agent.make_connection(peer)
        local = self.agent.prep_xfer_dlist("NIXL_INIT_AGENT", _descriptors(memory.ctypes.data, job), "DRAM")
        remote = self.agent.prep_xfer_dlist(peer, _descriptors(address, job), "DRAM")
        self.request = self.agent.make_prepped_xfer(
            job.operation, local, job.order_of_mover[share], remote, job.order_of_owner[share])

    def move(self):
        state = self.agent.transfer(self.request)
        while state == "PROC":
            state = self.agent.check_xfer_state(self.request)
        if state != "DONE":
            raise RuntimeError(f"NIXL's transfer ended with {state}")


class _Crew:
    """Threads that move their agents' shares at the same time."""

    def __init__(self, movers):
        self._begin = threading.Barrier(len(movers))
        self._end = threading.Barrier(len(movers))
        self._first = movers[0]
        for one in movers[1:]:
            threading.Thread(target=self._serve, args=(one,), daemon=True).start()

    def _serve(self, one):
        while True:
            self._begin.wait()
            try:
                one.move()
            except RuntimeError:
                self._end.abort()
                raise
            self._end.wait()

    def move(self):
        self._begin.wait()
        self._first.move()
        self._end.wait()


def mover(pipe, job, settings):
    api = _api(settings)
    is_source = job.operation == "WRITE"
    memory = _memory(job)
    job.fill(memory, is_source)
    metadata, address = pipe.hear()
    shares = np.array_split(np.arange(job.pieces), settings.agents)
    movers = [_Mover(api, f"mover-{i}", job, settings, memory, metadata, address, share)
              for i, share in enumerate(shares)]
    move = movers[0].move if len(movers) == 1 else _Crew(movers).move
    pipe.tell(steady_state(job, move))
    pipe.hear()
    job.fill(memory, is_source)
    move()
    pipe.tell(job.wrong(memory, is_source))
    pipe.hear()
