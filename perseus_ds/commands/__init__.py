"""The commands of `perseus-ds`, one module each."""
