"""The study of Tang et al. (2022), run again: ``python -m study`` in a clone of the project.

It stands beside the library and uses its public names only. Every trained model is a `Run`
(`plan`); `Records` keep what came of it; `results` reads the records into DataFrames, and tables,
figures and the page are made from those.
"""
