"""Which run got there sooner: tables and a page."""
