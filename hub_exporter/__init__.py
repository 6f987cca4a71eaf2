"""A model on the Hugging Face Hub in, verified ready-to-run ONNX, OpenVINO, ExecuTorch and torch.export files out."""

__version__ = "0.1.0"
