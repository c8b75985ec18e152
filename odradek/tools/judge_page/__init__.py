"""Creates the report of `odradek judge --html`.

page     renders the verdicts as one HTML file that includes its style and script
assets/  the style and the script

This package reads its assets from files. It is part of the command rather than of the judge, which opens no files.
"""
