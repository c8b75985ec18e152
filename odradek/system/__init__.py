"""Hides differences between Linux, macOS and Windows. Each feature is a single function, with a fallback for systems
that lack it.

The functions are chosen when a module in this package is imported, so that support for other systems costs nothing on
Linux. The modules are not compiled, because mypyc would evaluate `sys.platform` at compile time.
"""
