"""How much slow work one turn does."""

class TurnBudget:
    most: int  # steps of slow work in a turn
