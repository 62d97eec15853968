"""Sequence acceptance: a model with state is measured over a whole real input, never on one step.

A step alone says nothing of context and state: the inner network of Silero VAD agrees with its original to 1e-8 on 512
samples and reads silence in speech, because the whole model feeds it 64 samples more.
"""
