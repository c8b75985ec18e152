"""Creates the report of `odradek judge --html`.

page     renders the verdicts as one HTML file that includes its style and script
assets/  the style and the script

The judge itself opens no files, whereas this package reads its assets, so it is part of the command and not of the
judge.
"""
