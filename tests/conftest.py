"""Puts this directory on the import path, so that tests find the package ``oracle``."""
