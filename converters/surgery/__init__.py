"""Work on a graph by hand: look at it, take a part, fix sizes, rename, inline, cut, give a decoder its cache.

Every function reads a file and writes another; the input is never changed, weights are carried along as they are.
What can be is proven in ONNX Runtime, and the answer says how.
"""
