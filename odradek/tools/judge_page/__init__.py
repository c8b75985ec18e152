"""The report of `odradek judge --html`.

    page     writes the verdicts as one file of HTML, with its style and its script inside
    assets/  that style and that script

The judge itself opens no files, so the page that reads its assets lies beside the command.
"""
