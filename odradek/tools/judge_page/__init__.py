"""The report of `odradek judge --html`.

page     writes the verdicts as one HTML file that includes its style and its script
assets/  that style and that script

The judge itself opens no files, so the page, which reads its assets, belongs to the command.
"""
