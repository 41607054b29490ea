"""A shrunk network in a folder: its operations as JSON and its tensors as safetensors, read without running code."""
