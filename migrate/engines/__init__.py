"""Engines that translate a store of Parquet on many machines: `translate --engine NAME[:ADDRESS]`.

`base.py` has all that is ours: the parts of the work, the function that makes one, what is still to be made, and the
store that comes of them. An engine is a module with a class that maps this function over the parts, by whatever
processes it has, and is found by the entry points `lead_migrate.engines`.
"""
