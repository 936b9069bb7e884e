"""Side-by-side figures: a node against nginx with sendfile, and against its lake."""
