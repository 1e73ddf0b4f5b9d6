"""vLLM's scheduler over arrays, compiled: the same decisions at the same times as in Python.

It covers first come first served on one group of full attention, with and without prefix caching.
What it decides is what :class:`tokenroom.serving.schedulers.vllm.VllmScheduler` decides, served as
:func:`tokenroom.serving.simulator.simulate` serves it; the tests hold the two against each other.
numba is loaded when something is served, and each module here needs it except :mod:`.coverage`.
"""
