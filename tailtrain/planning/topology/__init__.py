"""Who does how much and how averagings go: measured, chosen, predicted, kept."""
