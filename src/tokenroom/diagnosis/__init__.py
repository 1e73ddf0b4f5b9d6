"""Why a server ran out of memory, by what it printed."""
