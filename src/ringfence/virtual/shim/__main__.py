"""``python -m ringfence.virtual.shim --device virtual:a630 -- python script.py``."""

import sys

from ringfence.virtual.shim.command import main

sys.exit(main(sys.argv[1:]))
