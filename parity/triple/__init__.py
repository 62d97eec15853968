"""The triple-parity table: original, ONNX Runtime and Sentis on the same bytes, each edge with its verdict.

Edge A is original against ONNX Runtime, edge B ONNX Runtime against Sentis, A∘B original against Sentis. What Sentis
computes is either measured (a dump of the harness in Unity) or predicted (the emulator): each row says which.
"""
