"""``python -m ringfence.cli``."""

from ringfence.cli import main

main()
