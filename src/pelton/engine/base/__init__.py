"""Values and pure functions of the control plane: settings, subjects, transforms, times of schedules, deadlines."""
