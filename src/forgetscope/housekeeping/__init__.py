"""Looking after a store: what it holds, whether it is whole, what can be freed, how it travels, and ad hoc questions."""
