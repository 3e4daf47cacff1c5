"""The demonstration that ``make demo`` runs: a text detector on a virtual A630."""
