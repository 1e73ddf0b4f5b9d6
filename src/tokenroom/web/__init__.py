"""The HTTP API and the page: thin, it asks the library and hands over what ``--json`` prints."""
