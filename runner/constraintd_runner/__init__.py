"""The ONNX Runtime runner: masks, samples and reports; keeps nothing that the daemon cannot give back."""
