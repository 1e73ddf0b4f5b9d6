"""A worker that ended with its task, as every executor tells it."""


class WorkerLostError(Exception):
    """The worker of a task ended with it, killed or crashed; the task itself did not fail."""
