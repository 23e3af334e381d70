"""The SamplerState, its config and its parts. Knows no gRPC."""
