"""What Python sees of a log's subjects; the compiled methods are declared in subject_table.pxd."""

RUN_IDS: int

class SubjectWatcher: ...

class SubjectTable:
    count: int
    spare: int
    live: int
    tracking: bool
    debt_free: int
    run_ids: int
