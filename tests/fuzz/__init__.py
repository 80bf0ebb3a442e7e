"""Coverage-guided fuzzing of the compiled core: see docs/howto/fuzz.md."""
