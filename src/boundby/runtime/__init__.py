"""Reading and changing a running script: patches, import and step hooks, settings, its cores.

Used by captures, fixes and proofs. Loaded before the script: nothing heavy is imported.
"""
