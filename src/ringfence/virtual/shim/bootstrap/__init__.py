"""A folder for PYTHONPATH: every Python process that sees it starts with its ``sitecustomize``."""
