"""Values and autograd facts of a few steps after the profile: one file per kind of evidence."""
