"""Tools that users write in Python, and run on workers of their own. Only references pass through Temporal.

A worker offers its tools (`offers`); a turn's tool step calls one on the worker's queue (`tool`, through the port in
`calling`), where it is run (`running`). What is exchanged is in `wire`.
"""
