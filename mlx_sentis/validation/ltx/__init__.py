"""The same phase for an LTX-2 trainer's workspace: the trainer itself renders, through its own validation.

Facts about that trainer were read in its public repository (Lightricks/LTX-2, packages/ltx-trainer, August 2026): it
writes `samples/step_<step>_<number>.<ext>` for step 0 and again after each validated step, always a last checkpoint and
`training_config.yaml`, and reads its configuration with PyYAML.
"""
