"""How results are shown: pages, report folders, tables in a terminal, numbers in words."""
