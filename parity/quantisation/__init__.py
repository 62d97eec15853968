"""What Sentis' Float16 and Uint8 weights cost, before Unity is opened: numbers, sizes and the user's own task."""
