"""What Python sees of a log's subjects; the compiled methods are declared in subject_table.pxd."""

class SubjectTable:
    count: int
    live: int
    tracking: bool
    debt_free: int
