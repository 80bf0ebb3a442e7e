"""``pelton sql``: questions, the forms of their results, the prompt."""
