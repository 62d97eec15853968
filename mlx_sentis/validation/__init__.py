"""Validation renders: a tuned model shown on three kinds of prompts, for people to look at; nothing here judges."""
