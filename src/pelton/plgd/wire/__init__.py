"""The hub's protobuf messages: ``.proto`` files with the hub's numbers, and the modules that protoc
makes from them.

``make plgd-proto`` makes the ``_pb2`` modules again. Names, numbers and packages are those of the hub
v2.25, so that bytes and gRPC paths are the same.
"""
