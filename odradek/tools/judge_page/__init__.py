"""Creates the report of `odradek judge --html`.

page     renders the verdicts as one HTML file that includes its style and its script
assets/  the style and the script

The judge itself opens no files. This package reads its assets, so it belongs to the command and not to the judge.
"""
