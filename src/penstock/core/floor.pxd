"""How far a log's sequences have gone, in the index file of its newest segment. See floor.pyx."""
