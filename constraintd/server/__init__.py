"""The gRPC server around the service: lifecycle, interceptors, health. No logic of its own."""
