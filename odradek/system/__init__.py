"""What Linux, macOS and Windows do differently: each ability has one function here, with a fallback where it is absent.

The functions are chosen when a module of this package is imported, so that Linux pays nothing for the others. The
modules are not compiled, because mypyc would decide `sys.platform` when it compiles.
"""
