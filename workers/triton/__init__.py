"""Everything that speaks gRPC to the engine, NVIDIA Triton or whatever else serves the Open Inference Protocol.

Nothing outside this package imports `grpc` or the generated stubs; nothing in it knows jobs, lanes or Redis.
"""
